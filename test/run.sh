#!/bin/sh
# The tests, from a fresh clone on Debian: test/run.sh [go test flags].
# Installs what they need (test/setup.sh). A test that would skip because
# something is missing fails instead; set RANKSTORM_REQUIRE= to allow skips.
set -eu
cd "$(dirname "$0")/.."
test/setup.sh
: "${RANKSTORM_REQUIRE=python,ipv6,rtnetlink,rdma-headers}"
export RANKSTORM_REQUIRE
# Two packages at a time: whole jobs of many processes share the machine's cores.
exec go test -race -shuffle=on -timeout 15m -p 2 "$@" ./...
