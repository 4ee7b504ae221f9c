# shellcheck shell=bash
# Read by hosts, slurm, ssh and selftest; not a command.

ME=${0##*/}
LAB=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
STATE=${RANKSTORM_LAB_DIR:-${TMPDIR:-/tmp}/rankstorm-lab}
NET=${RANKSTORM_LAB_NET:-10.97.0}
PREFIX=${RANKSTORM_LAB_PREFIX:-n}
umask 022 # other users' programs read the settings; keys are made with a mode of their own

fail() { echo "$ME: $*" >&2; exit 1; }
wrong_usage() { usage >&2; exit 2; }

# packages NAME... - installs the Debian packages that are missing. A file that
# says so keeps Debian from starting the services they bring.
packages() {
	local name missing=() policy=/usr/sbin/policy-rc.d ours=0 status=0
	for name; do
		[[ $(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null) == installed ]] || missing+=("$name")
	done
	((${#missing[@]})) || return 0
	echo "$ME: installs ${missing[*]}" >&2
	if [[ ! -e $policy ]]; then
		ours=1
		printf '#!/bin/sh\nexit 101\n' >$policy
		chmod 755 $policy
	fi
	{
		apt-get -qq -o DPkg::Lock::Timeout=300 update || true # an old list may do
		DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o DPkg::Lock::Timeout=300 \
			install --no-install-recommends "${missing[@]}"
	} >&2 </dev/null || status=$?
	((ours == 0)) || rm -f $policy
	((status == 0)) || fail "cannot install ${missing[*]}"
}

# alone FUNCTION ARGS... - one up or down at a time. What the function starts
# inherits neither this lock nor a caller's lock or pipe: it outlives them.
alone() {
	local fd
	for fd in /proc/$BASHPID/fd/*; do
		fd=${fd##*/}
		((fd <= 2 || fd == 255)) || eval "exec $fd>&-" # 255: this script
	done
	exec 9>"$STATE.lock"
	flock -w 300 9 || fail "another up or down has been at work for 300 s"
	"$@" 9>&-
}

# start_of ARGS... - help, and who may go on
start_of() {
	(($#)) || wrong_usage
	case $1 in -h | --help | help) usage; exit 0 ;; esac
	((EUID == 0)) || fail "needs root"
	[[ $PREFIX =~ ^[a-z][a-z0-9]{0,4}$ ]] || fail "RANKSTORM_LAB_PREFIX '$PREFIX': up to 5 letters or digits"
	[[ $NET =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "RANKSTORM_LAB_NET '$NET': three numbers with dots"
}

# hosts_list - NAME ADDRESS, a line each, head last; nothing if the hosts are down
hosts_list() { [[ ! -e $STATE/hosts/list ]] || cat "$STATE/hosts/list"; }
host_names() { hosts_list | cut -d' ' -f1; }
job_hosts() { host_names | grep -vx head || true; } # all but head

# is_daemon PIDFILE - does that process live, and is it one of this lab?
is_daemon() {
	local pid
	pid=$(cat "$1" 2>/dev/null) && [[ -n $pid ]] &&
		tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF "$STATE/"
}

# end_daemon PIDFILE [SIGNAL] - and wait until it is gone; KILL after 6 s. A
# daemon may remove the file before it ends, so the pid is read first.
end_daemon() {
	local pid tenth
	is_daemon "$1" || { rm -f "$1"; return 0; }
	pid=$(cat "$1")
	kill "-${2-TERM}" "$pid" 2>/dev/null || true
	for ((tenth = 0; tenth < 100; tenth++)); do
		if ! tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | grep -qF "$STATE/"; then
			rm -f "$1"
			return 0
		fi
		((tenth != 60)) || kill -KILL "$pid" 2>/dev/null || true
		sleep 0.1
	done
	fail "process $pid of $1 does not end"
}

# within SECONDS TEXT CMD... - CMD succeeds in that time, or TEXT is said
within() {
	local end=$((SECONDS + $1)) text=$2
	shift 2
	until "$@" >/dev/null 2>&1; do
		((SECONDS < end)) || { echo "$ME: $text" >&2; return 1; }
		sleep 0.1
	done
}
