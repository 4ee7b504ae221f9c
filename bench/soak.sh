#!/bin/sh
# A million connections over rounds with the real program, and what is left after each round.
# Arguments go to the driver: bench/soak.sh -total 100000
set -eu
cd "$(dirname "$0")/.."
out=bench/out
mkdir -p $out
go build -o $out/rankstorm ./cmd/rankstorm
go build -o $out/soak ./bench/soak
$out/soak -dir $out "$@"
