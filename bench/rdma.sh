#!/usr/bin/env bash
# Sets `rankstorm cmtime` beside the packaged cmtime, run in turn in one machine of
# the RDMA lab: bench/rdma.sh [RUNS [CONNECTIONS]]. No test: only ratios of the
# same run mean anything, and the processor is emulated.
#
# Debian 12's cmtime is the older one. Its rows are compared with ours so:
#   create qp  = create qp + init qp       (rdma_create_qp does both)
#   connect    = cm connect                (first request → last connection ready, RTR and RTS included)
#   disconnect = disconnect + destroy qp   (it destroys the queue pair right after rdma_disconnect)
#   destroy    = destroy id
set -euo pipefail
rows="create_id bind_addr resolve_addr resolve_route create_qp connect disconnect destroy"

# inside RUNS CONNECTIONS - in the machine: a line "SIDE RUN ROW MILLISECONDS" per row.
inside() {
	local run server
	ours() { # as cmtime: server and client, no table but the first pass of the client
		/tmp/rankstorm cmtime -b "$RDMALAB_IP1" -C "$RDMALAB_IP1" -c "$2" -L --no-qp-pass=false --quiet >/dev/null &
		server=$!
		/tmp/rankstorm cmtime -b "$RDMALAB_IP0" -C "$RDMALAB_IP1" -c "$2" --no-qp-pass=false --quiet >/tmp/table
		wait "$server"
		awk -v run="$1" '
			/^step/ { table++ }
			table != 1 { next }
			{ name = substr($0, 1, 15); gsub(/^ +| +$/, "", name); split(substr($0, 16), f, " "); total[name] = f[2] / 1000 }
			END {
				total["create qp"] += total["init qp"]; total["connect"] = total["cm connect"]; total["disconnect"] += total["destroy qp"]; total["destroy"] = total["destroy id"]
				for (name in total) { row = name; gsub(/ /, "_", row); printf "ours %s %s %.3f\n", run, row, total[name] }
			}' /tmp/table
	}
	peer() {
		cmtime -b "$RDMALAB_IP1" -c "$2" >/dev/null &
		server=$!
		sleep 0.5 # it says nothing when it listens
		cmtime -s "$RDMALAB_IP1" -b "$RDMALAB_IP0" -c "$2" >/tmp/table
		kill "$server" # it never ends by itself
		wait "$server" 2>/dev/null || true
		awk -F: -v run="$1" '
			NF == 2 && split($2, f, " ") >= 4 { name = $1; gsub(/ +$/, "", name); gsub(/ /, "_", name); printf "peer %s %s %.3f\n", run, name, f[1] }
		' /tmp/table
	}
	cp "$3" /tmp/rankstorm
	for ((run = 0; run <= $1; run++)); do # run 0 warms up
		if ((run % 2)); then ours $run "$2"; peer $run "$2"; else peer $run "$2"; ours $run "$2"; fi
	done
}
if [[ ${1-} == --inside ]]; then
	inside "${@:2}"
	exit
fi

runs=${1:-9} conns=${2:-1000}
cd "$(dirname "$0")/.."
mkdir -p bench/out
go build -o bench/out/rankstorm ./cmd/rankstorm
test/rdmalab/vm -t 900 -- bench/rdma.sh --inside "$runs" "$conns" "$PWD/bench/out/rankstorm" >bench/out/rdma.txt
echo "rankstorm cmtime beside rdma-core's cmtime (Debian 12), $conns connections, soft-RoCE, $runs runs each in turn: wall time of each step"
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
		printf "%-14s %12s %12s %7s   %s\n", "step", "rankstorm ms", "cmtime ms", "ratio", "its own spread"
		n = split(rows " sum", list, " ")
		for (i = 1; i <= n; i++) {
			a = sorted("ours", list[i]); b = sorted("peer", list[i])
			gsub(/_/, " ", list[i])
			printf "%-14s %12.2f %12.2f %7.2f   %.2f to %.2f\n", list[i], a, b, b ? a / b : 0, b ? low / b : 0, b ? high / b : 0
		}
	}' bench/out/rdma.txt
