# Draws docs/growth.svg from bench/out/growth.dat: gnuplot bench/growth.gp
set terminal svg size 900,420 font "sans,12" background "white"
set output "docs/growth.svg"
set logscale xy
set grid
set key left top
set xlabel "processes"
set multiplot layout 1,2
set title "one machine of 2 CPUs: measured (points), modelled (lines)"
set ylabel "ms"
d = "bench/out/growth.dat"
plot d using 1:($3==1 ? $6 : 1/0) with points pt 7 title "barrier", \
     d using 1:($3==0 && $2==1 ? $6 : 1/0) with lines lw 2 title "barrier, model", \
     d using 1:($3==1 ? $5 : 1/0) with points pt 5 title "seal", \
     d using 1:($3==0 && $2==1 ? $5 : 1/0) with lines lw 2 title "seal, model"
set title "hosts of 8 processes: modelled"
plot d using 1:($3==0 && $2>1 ? $6 : 1/0) with linespoints lw 2 title "barrier, ms", \
     d using 1:($3==0 && $2>1 ? $5 : 1/0) with linespoints lw 2 title "seal, ms", \
     d using 1:($3==0 && $2>1 ? $4 : 1/0) with linespoints lw 2 title "gather, ms", \
     d using 1:($3==0 && $2>1 ? $8 : 1/0) with linespoints lw 2 title "messages at the busiest process, a phase"
unset multiplot
