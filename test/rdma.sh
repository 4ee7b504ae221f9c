#!/bin/sh
# The tests that need RDMA: test/rdma.sh [go test flags]. They run in machines of
# test/rdmalab: root is needed only to install qemu where it is missing. None of
# these tests may skip; list less in RANKSTORM_REQUIRE to allow it.
set -eu
cd "$(dirname "$0")/.."
test/setup.sh
: "${RANKSTORM_REQUIRE=rdma}"
export RANKSTORM_REQUIRE
vm=$PWD/test/rdmalab/vm
"$vm" --build
# Packages whose tests run inside a machine, one machine each.
inside=$(go list ./transport/rdma/... 2>/dev/null || true)
if [ -n "$inside" ]; then
	# shellcheck disable=SC2086 # one word per package is meant
	go test -count=1 -p 1 -timeout 4m -exec "$vm -t 200 --" "$@" $inside
fi
# Tests that start machines of their own.
exec go test -count=1 -timeout 15m "$@" ./test/rdma
