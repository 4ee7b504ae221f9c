#!/bin/sh
# Type this on n2 and n3, before or after the servers: two clients, each with 100
# connections to every server. n2 is the controller and prints the tables of all.
rankstorm cmtime --transport tcp -B eth0 -C n2 -P 4 -c 100
