#!/bin/sh
# What strangers cost a job: runs it over two hosts of test/lab with and without
# junk from a third, in turn, and prints both. Root. Arguments go to the driver:
# bench/junk.sh -runs 11 -rate 2000
set -eu
cd "$(dirname "$0")/.."
out=bench/out
mkdir -p $out
go build -o $out/rankstorm ./cmd/rankstorm
go build -o $out/junk ./test/junk/cmd
go build -o $out/disturbed ./bench/junk
test/lab/hosts up 3
trap 'test/lab/hosts down' EXIT
$out/disturbed -dir $out "$@"
