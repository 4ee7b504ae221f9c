#!/bin/sh
# Runs every fuzz target of the module for a while: test/fuzz.sh [DURATION].
set -eu
cd "$(dirname "$0")/.."
duration=${1:-10s}
for file in $(git ls-files '*_test.go' | xargs grep -lE '^func Fuzz[A-Z]' || true); do
	package=./$(dirname "$file")
	for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]+)\(.*/\1/p' "$file"); do
		echo "$package $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$duration" "$package"
	done
done
