#!/bin/sh
# Two processes on each of four hosts, started by Open MPI over ssh. It tells
# them who they are, but not where process 0 is: -C names the first host. Inside
# an allocation of Slurm leave out -H and -C.
mpirun -H n0:2,n1:2,n2:2,n3:2 rankstorm run -C n0 --topology all_to_all -c 4
