#!/bin/sh
# Installs what the tests need beside Go: a C compiler (race detector), Python 3
# (the independent check of the printed table), git, make, the certificates that
# Go fetches modules with, ip and unshare (networks of a test's own), and the RDMA
# libraries' headers (compared with ours).
# Does nothing where they are there already; without root it says what is missing.
set -eu
packages=
need() { command -v "$1" >/dev/null 2>&1 || packages="$packages $2"; }
need gcc gcc
[ -e /usr/include/infiniband/verbs.h ] || packages="$packages libibverbs-dev"
[ -e /usr/include/rdma/rdma_cma.h ] || packages="$packages librdmacm-dev"
[ -e /usr/include/stdlib.h ] || packages="$packages libc6-dev"
need python3 python3
need git git
need make make
need ip iproute2
need unshare util-linux
need mount mount
[ -e /etc/ssl/certs/ca-certificates.crt ] || packages="$packages ca-certificates"
if [ -n "$packages" ]; then
	if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
		echo "the tests need these Debian packages: apt-get install$packages" >&2
		exit 1
	fi
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq
	# shellcheck disable=SC2086 # one word per package is meant
	apt-get install -y -qq --no-install-recommends $packages >/dev/null
fi
if ! command -v go >/dev/null 2>&1; then
	echo "the tests need Go 1.26 or later in PATH: https://go.dev/dl" >&2
	exit 1
fi
