#!/bin/sh
# Jobs over several hosts and by real launchers: test/hosts.sh [go test flags].
# Needs root and Debian: hosts are network namespaces, and the labs install what
# they lack (Slurm, pdsh, sshd, Open MPI). None of these tests may skip; list
# less in RANKSTORM_REQUIRE to allow it.
set -eu
cd "$(dirname "$0")/.."
test/setup.sh
: "${RANKSTORM_REQUIRE=hosts,slurm,pdsh,mpirun}"
export RANKSTORM_REQUIRE
exec go test -race -shuffle=on -count=1 -timeout 15m "$@" ./test/hosts
