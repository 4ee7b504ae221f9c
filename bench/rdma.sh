#!/usr/bin/env bash
# Sets `rankstorm cmtime` beside the packaged cmtime, run in turn in one machine of
# the RDMA lab: bench/rdma.sh [--suite NAME] [RUNS [CONNECTIONS]]. No test: only
# ratios of the same run mean anything, and the processor is emulated.
#
# The cmtime of Debian 12 is the older one. Its rows are compared with ours so:
#   create qp  = create qp + init qp       (rdma_create_qp does both)
#   connect    = cm connect                (first request → last connection ready, RTR and RTS included)
#   disconnect = disconnect + destroy qp   (it destroys the queue pair right after rdma_disconnect)
#   destroy    = destroy id
# With a newer Debian (--suite sid) it is the one whose face `rankstorm cmtime` has:
# the rows with a total, by name, and the two tables must have the same form. Its
# server is the controller and takes part in every pass, its queue pair numbers need
# ranges of their own.
set -euo pipefail

# inside RUNS CONNECTIONS PROGRAM FOLDER - in the machine: a line "SIDE RUN ROW MILLISECONDS"
# per row, and the last table of each side in FOLDER.
inside() {
	local run server usage face=new
	usage=$(cmtime -Z 2>&1) || true # how it answers an unknown option
	[[ $usage == *'-C'* ]] || face=old
	echo "face $face"
	ours() { # as cmtime: server and client, no table but the first pass of the client
		/tmp/rankstorm cmtime -b "$RDMALAB_IP1" -C "$RDMALAB_IP1" -c "$2" -L --no-qp-pass=false --quiet >/dev/null &
		server=$!
		/tmp/rankstorm cmtime -b "$RDMALAB_IP0" -C "$RDMALAB_IP1" -c "$2" --no-qp-pass=false --quiet >/tmp/ours
		wait "$server"
		totals ours "$1" /tmp/ours
	}
	peer() {
		if [[ $face == new ]]; then
			cmtime -b "$RDMALAB_IP1" -C "$RDMALAB_IP1" -c "$2" -q 1000000 -L >/dev/null &
			server=$!
			sleep 0.5 # a client that comes before the controller ends at once
			cmtime -b "$RDMALAB_IP0" -C "$RDMALAB_IP1" -c "$2" -q 2000000 >/tmp/peer
			wait "$server"
			totals peer "$1" /tmp/peer
			return
		fi
		cmtime -b "$RDMALAB_IP1" -c "$2" >/dev/null &
		server=$!
		sleep 0.5 # it says nothing when it listens
		cmtime -s "$RDMALAB_IP1" -b "$RDMALAB_IP0" -c "$2" >/tmp/peer
		kill "$server" # it never ends by itself
		wait "$server" 2>/dev/null || true
		awk -F: -v run="$1" '
			NF == 2 && split($2, f, " ") >= 4 { name = $1; gsub(/ +$/, "", name); gsub(/ /, "_", name); printf "peer %s %s %.3f\n", run, name, f[1] }
		' /tmp/peer
	}
	totals() { # SIDE RUN TABLES: of the first one
		awk -v side="$1" -v run="$2" -v face=$face '
			/^step/ { table++; next }
			table != 1 || length($0) < 80 { next }
			{ name = substr($0, 1, 15); gsub(/^ +| +$/, "", name); split(substr($0, 16), f, " "); total[name] = f[2] / 1000 }
			END {
				if (face == "old") {
					total["create qp"] += total["init qp"]; total["connect"] = total["cm connect"]; total["disconnect"] += total["destroy qp"]; total["destroy"] = total["destroy id"]
				}
				for (name in total) { row = name; gsub(/ /, "_", row); printf "%s %s %s %.3f\n", side, run, row, total[name] }
			}' "$3"
	}
	cp "$3" /tmp/rankstorm
	for ((run = 0; run <= $1; run++)); do # run 0 warms up
		if ((run % 2)); then ours $run "$2"; peer $run "$2"; else peer $run "$2"; ours $run "$2"; fi
	done
	cp /tmp/ours "$4/rdma.ours"
	cp /tmp/peer "$4/rdma.peer"
}
if [[ ${1-} == --inside ]]; then
	inside "${@:2}"
	exit
fi

suite=
if [[ ${1-} == --suite ]]; then
	suite=${2:?--suite: a name is missing}
	shift 2
fi
runs=${1:-9} conns=${2:-1000}
cd "$(dirname "$0")/.."
mkdir -p bench/out
go build -o bench/out/rankstorm ./cmd/rankstorm
test/rdmalab/vm ${suite:+--suite "$suite"} -t 900 -- bench/rdma.sh --inside "$runs" "$conns" "$PWD/bench/out/rankstorm" "$PWD/bench/out" >bench/out/rdma.txt
if grep -q '^face old' bench/out/rdma.txt; then
	rows="create_id bind_addr resolve_addr resolve_route create_qp connect disconnect destroy"
else
	rows="create_id bind_addr resolve_addr resolve_route create_qp init_qp cm_connect disconnect destroy_id destroy_qp"
	# The form of a table: its lines without their figures.
	form() { sed -n '/^qp_conn/,/^destroy qp/p' "$1" | sed -E '/^step/!s/[0-9]/ /g'; }
	if diff <(form bench/out/rdma.peer) <(form bench/out/rdma.ours) >&2; then
		echo "the two tables have the same form"
	else
		echo "bench/rdma.sh: the two tables differ in form" >&2
		exit 1
	fi
fi
echo "rankstorm cmtime beside rdma-core's cmtime (Debian ${suite:-of this machine}), $conns connections, soft-RoCE, $runs runs each in turn: wall time of each step"
awk -v rows="$rows" '
	function sorted(side, row,    i, j, n, v) {
		n = count[side, row]
		for (i = 1; i <= n; i++) v[i] = value[side, row, i]
		for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j] < v[j - 1]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
		low = v[1]; high = v[n]
		return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
	}
	$2 > 0 && index(" " rows " ", " " $3 " ") { value[$1, $3, ++count[$1, $3]] = $4; sum[$1, $2] += $4; if ($2 > runs) runs = $2 }
	END {
		for (r = 1; r <= runs; r++) { value["ours", "sum", ++count["ours", "sum"]] = sum["ours", r]; value["peer", "sum", ++count["peer", "sum"]] = sum["peer", r] }
		printf "%-14s %12s %12s %7s   %-14s %s\n", "step", "rankstorm ms", "cmtime ms", "ratio", "cmtime spread", "rankstorm spread"
		n = split(rows " sum", list, " ")
		for (i = 1; i <= n; i++) {
			a = sorted("ours", list[i]); least = low; most = high
			b = sorted("peer", list[i])
			gsub(/_/, " ", list[i])
			printf "%-14s %12.2f %12.2f %7.2f   %.2f to %-6.2f %.2f to %.2f\n", list[i], a, b, b ? a / b : 0, b ? low / b : 0, b ? high / b : 0, a ? least / a : 0, a ? most / a : 0
		}
	}' bench/out/rdma.txt
