#!/bin/sh
# Fuzzes every decoder of the module: test/fuzz.sh [TOTAL] [REGEXP], for instance
# test/fuzz.sh 10m. TOTAL is spread over all targets, or those whose names match.
# Prints executions per target and in all; a crash ends with 1, and go has put
# what crashed into testdata/fuzz of that package: commit it with the fix.
# What is new to the coverage is kept in RANKSTORM_FUZZ_CACHE (bin/fuzz) from run
# to run. RANKSTORM_FUZZ_WORKERS: processes at a time (all cores).
set -eu
cd "$(dirname "$0")/.."
total=$(echo "${1:-5m}" | awk '/^([0-9]+h)?([0-9]+m)?([0-9]+s)?$/ { t = 0
	while (match($0, /^[0-9]+[hms]/)) { u = substr($0, RLENGTH, 1); t += substr($0, 1, RLENGTH - 1) * (u == "h" ? 3600 : u == "m" ? 60 : 1); $0 = substr($0, RLENGTH + 1) }
	print t }')
[ -n "$total" ] || { echo "fuzz: how long? for instance 10m, 90s" >&2; exit 2; }
cache=${RANKSTORM_FUZZ_CACHE:-$PWD/bin/fuzz}
parallel=${RANKSTORM_FUZZ_WORKERS:+-parallel $RANKSTORM_FUZZ_WORKERS}
log=$(mktemp)
list=$(mktemp)
trap 'rm -f "$log" "$list"' EXIT
for file in $(git ls-files -co --exclude-standard '*_test.go' | xargs grep -lE '^func Fuzz[A-Z]'); do
	sed -nE "s|^func (Fuzz[A-Za-z0-9_]+)\(.*|./$(dirname "$file") \1|p" "$file"
done | grep -E -- "${2:-.}" | sort >"$list" || true
targets=$(wc -l <"$list")
[ "$targets" -gt 0 ] || { echo "fuzz: no target matches $2" >&2; exit 2; }
each=$((total / targets))
[ "$each" -gt 0 ] || each=1
echo "$targets targets, $each s each"
printf '%-26s %-24s %12s %10s  %s\n' package target executions seeds result
all=0
crashed=0
while read -r package target; do
	result=ok
	# shellcheck disable=SC2086 # none or two words
	go test -run '^$' -fuzz "^$target\$" -fuzztime "${each}s" -fuzzminimizetime 1s $parallel "$package" -args -test.fuzzcachedir="$cache/$package" >"$log" 2>&1 || result=CRASH
	executions=$(sed -nE 's/.* execs: ([0-9]+).*/\1/p' "$log" | tail -n 1)
	seeds=$(sed -nE 's/.* gathering baseline coverage: [0-9]+\/([0-9]+) completed.*/\1/p' "$log" | tail -n 1)
	printf '%-26s %-24s %12s %10s  %s\n' "${package#./}" "$target" "${executions:-0}" "${seeds:-0}" "$result"
	all=$((all + ${executions:-0}))
	if [ "$result" != ok ]; then
		crashed=$((crashed + 1))
		cat "$log"
	fi
done <"$list"
echo "$all executions, $crashed targets crashed"
[ "$crashed" -eq 0 ]
