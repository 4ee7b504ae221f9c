#!/bin/sh
# The tests, from a fresh clone on Debian: test/run.sh [go test flags].
# Installs what they need (test/setup.sh). A test that would skip because
# something is missing fails instead; set RANKSTORM_REQUIRE= to allow skips.
set -eu
cd "$(dirname "$0")/.."
test/setup.sh
needs=python,ipv6,rtnetlink,rdma-headers
# What only root may do: networks and disks of a test's own, and listening in.
[ "$(id -u)" -ne 0 ] || needs=$needs,netns,mount,packets
: "${RANKSTORM_REQUIRE=$needs}"
export RANKSTORM_REQUIRE
# Seeded jobs of many processes take ten times as long under the race detector:
# all of them run without it, and a part with it.
whole='TestFaults|TestKilledAroundTheEnd|TestSubtreesFiguresArriveFromTheLastPhase|TestGrowthFollowsTheModel'
status=0
if [ $# -eq 0 ]; then
	go test -shuffle=on -timeout 10m -run "^($whole)\$" ./phases/runner || status=1
	: "${RANKSTORM_SHARE=25}"
	export RANKSTORM_SHARE
fi
# Two packages at a time: whole jobs of many processes share the machine's cores.
go test -race -shuffle=on -timeout 15m -p 2 "$@" ./... || status=1
exit "$status"
