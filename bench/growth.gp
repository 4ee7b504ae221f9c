# Draws docs/growth.svg from bench/out/growth.dat: gnuplot bench/growth.gp
set terminal svg size 900,460 font "sans,12" background "white"
set output "docs/growth.svg"
set logscale xy
set grid
set key below
set xlabel "processes"
set ylabel "ms"
measured = "< awk '$3 == 1' bench/out/growth.dat"
machine = "< awk '$3 == 0 && $2 == 1' bench/out/growth.dat"
cluster = "< awk '$3 == 0 && $2 > 1' bench/out/growth.dat"
set multiplot layout 1,2
set title "one machine of 2 CPUs"
set xrange [5:400]
plot measured using 1:6 with points pt 7 lc 1 title "barrier, measured", \
     machine using 1:6 with lines lw 2 lc 1 title "modelled", \
     measured using 1:5 with points pt 5 lc 2 title "seal, measured", \
     machine using 1:5 with lines lw 2 lc 2 title "modelled"
set title "hosts of 8 processes, modelled"
set xrange [10:100000]
set ylabel "ms, messages"
plot cluster using 1:6 with linespoints lw 2 lc 1 title "barrier", \
     cluster using 1:5 with linespoints lw 2 lc 2 title "seal", \
     cluster using 1:4 with linespoints lw 2 lc 3 title "gather", \
     cluster using 1:8 with linespoints lw 2 lc 4 title "messages, busiest process"
unset multiplot
