# Draws docs/soak.svg from bench/out/soak.dat: gnuplot bench/soak.gp
set terminal svg noenhanced size 900,400 font "sans,12" background "white"
set output "docs/soak.svg"
set grid
set key below
set xlabel "connections so far"
set format x "%.0s%c"
set xtics 250000
set autoscale xfix
set format y "%.0f"
data = "bench/out/soak.dat"
set multiplot layout 1,2
set title "memory of all processes"
set ylabel "MiB"
set yrange [0:*]
plot data using 1:($4/2**20) with lines lw 2 title "resident", data using 1:($5/2**20) with lines lw 2 title "heap in use"
set title "held after each round"
set ylabel "in all"
set logscale y
set yrange [10:1000000]
plot data using 1:2 with lines lw 2 title "descriptors", data using 1:3 with lines lw 2 title "goroutines", data using 1:6 with lines lw 2 title "TIME_WAIT"
unset multiplot
