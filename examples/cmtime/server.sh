#!/bin/sh
# Type this on n0 and n1: two servers of a job of four. Without --transport the
# connections are those of RDMA CM.
rankstorm cmtime --transport tcp -B eth0 -C n2 -P 4 -c 100 -L
