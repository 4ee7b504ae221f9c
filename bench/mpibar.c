/* The peer for "start to first barrier": MPI_Init, MPI_Barrier, then N timed
 * barriers. Rank 0 prints one line:
 *
 *   ranks 64 first_barrier_s 2.731 barrier_median_us 1103.2 barriers 200
 *
 * first_barrier_s is the longest time of any rank from START to the end of its
 * first barrier. START is the moment given as the first argument, seconds since
 * the epoch with a fraction (date +%s.%N, taken before mpirun), so that the
 * launcher's own time counts as it does for us; with 0 it is the start of main.
 * A barrier's time is that of its slowest rank.
 *
 *   mpicc -O2 -o mpibar mpibar.c
 *   mpirun --oversubscribe -n 64 ./mpibar $(date +%s.%N) 200
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double wall(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_REALTIME, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static double monotonic(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	double begun = wall();
	double start = argc > 1 ? strtod(argv[1], NULL) : 0;
	long count = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
	if (start <= 0)
		start = begun;
	if (count < 0 || count > 1000000) {
		fprintf(stderr, "usage: mpibar [START [BARRIERS]], 0 to 1000000 barriers\n");
		return 2;
	}

	MPI_Init(&argc, &argv);
	MPI_Barrier(MPI_COMM_WORLD);
	double first = wall() - start, slowest = 0;

	int rank, size;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Reduce(&first, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);

	double *own = calloc((size_t)count + 1, sizeof *own);
	double *all = calloc((size_t)count + 1, sizeof *all);
	if (!own || !all) {
		fprintf(stderr, "mpibar: out of memory\n");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	for (long i = 0; i < count; i++) {
		double before = monotonic();
		MPI_Barrier(MPI_COMM_WORLD);
		own[i] = monotonic() - before;
	}
	MPI_Reduce(own, all, (int)count, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
	if (rank == 0) {
		double median = 0;
		if (count > 0) {
			qsort(all, (size_t)count, sizeof *all, ascending);
			median = count % 2 ? all[count / 2] : (all[count / 2 - 1] + all[count / 2]) / 2;
		}
		printf("ranks %d first_barrier_s %.3f barrier_median_us %.1f barriers %ld\n", size, slowest, median * 1e6, count);
		fflush(stdout);
	}
	free(own);
	free(all);
	MPI_Finalize();
	return 0;
}
