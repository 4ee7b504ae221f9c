#!/bin/sh
# One process on each of 40 hosts; all of them storm n0.
#   -R ssh   some builds of pdsh use rsh unless told otherwise
#   -f 40    at least as many as there are hosts: pdsh starts only 32 at a time,
#            and the others would never come
#   -N       no host names in front of the table's lines
#   -S       exit with the job's exit code
#   %n       pdsh's number of the host, from 0: n0 becomes rank 0
pdsh -R ssh -f 40 -N -S -w 'n[0-39]' rankstorm run -C n0 -P 40 --rank %n --topology incast -c 10
