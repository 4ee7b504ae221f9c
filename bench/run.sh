#!/bin/sh
# Builds the product and its peers, runs them in turn and prints ratios.
# Arguments go to the driver: bench/run.sh -runs 7 -only storm
set -eu
cd "$(dirname "$0")/.."
out=bench/out
mkdir -p $out
go build -o $out/rankstorm ./cmd/rankstorm
go build -o $out/sidebyside ./bench/sidebyside
gcc -O2 -Wall -o $out/storm bench/storm.c
if command -v mpicc >/dev/null 2>&1; then
	mpicc -O2 -Wall -o $out/mpibar bench/mpibar.c
else
	rm -f $out/mpibar
	echo "bench: no mpicc (Debian: openmpi-bin libopenmpi-dev): the comparison with MPI is left out" >&2
fi
exec $out/sidebyside -dir $out "$@"
