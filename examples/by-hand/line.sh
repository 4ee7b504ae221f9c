#!/bin/sh
# Type this in two terminals on each of n0 … n3, in any order. The processes meet
# at n0, whichever comes first; the job starts when all 8 are there.
rankstorm run -C n0 -P 8 --topology all_to_all -c 4
