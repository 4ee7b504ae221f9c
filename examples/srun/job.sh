#!/bin/sh
# Two processes on each of four nodes. Inside srun the program needs nothing
# else: how many there are, who is which, and where they meet, Slurm says.
srun -N 4 --ntasks-per-node 2 rankstorm run --topology all_to_all -c 4
