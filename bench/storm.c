/*
 * storm: the connect storm that rankstorm is measured against, in C.
 *
 * Two processes on one host: a forked target and an initiator, each one epoll
 * loop. Per connection: connect, the initiator's hello (56 bytes), the target's
 * answer (16 bytes). At most `window` connections are between connect and
 * answer. Both grow their descriptor table before the clock starts. Every
 * socket stays open until the last answer has been read.
 *
 *   gcc -O2 -o storm storm.c && ./storm -n 8000 -w 256 --precreate
 *
 * Flags: -n connections, -w window (0: all at once), -r rounds,
 * --precreate  sockets are made, bound and put into the epoll set before the
 *              clock starts, as rankstorm does in phases of their own
 * --eager      the hello is tried straight after connect(2), which over
 *              loopback has been answered by then
 *
 * One line a round: connections/s, then the percentiles of connect called →
 * answer read in microseconds.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HELLO = 56, ANSWER = 16, BATCH = 256, SLACK = 64, LISTENER = -1 };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000LL + ts.tv_nsec;
}

/* One growth instead of one per doubling. */
static void grow_table(int n)
{
	int fd = fcntl(0, F_DUPFD_CLOEXEC, n + SLACK);

	if (fd < 0)
		die("growing the descriptor table (ulimit -n)");
	close(fd);
}

static void watch(int ep, int op, int fd, uint32_t events, int64_t data)
{
	struct epoll_event e = { .events = events, .data.u64 = (uint64_t)data };

	if (epoll_ctl(ep, op, fd, &e))
		die("epoll_ctl");
}

/* ---- target ---- */

static void target(int listener, int ready, int n)
{
	struct epoll_event ev[BATCH];
	int ep = epoll_create1(EPOLL_CLOEXEC);
	int *fds = malloc(sizeof(int) * (n + SLACK));
	char *got = calloc(n + SLACK, 1);
	char answer[ANSWER] = "answer", hello[HELLO * 2];
	int accepted = 0, i;

	memset(fds, 0xff, sizeof(int) * (n + SLACK));
	grow_table(n);
	watch(ep, EPOLL_CTL_ADD, listener, EPOLLIN, LISTENER);
	if (write(ready, "x", 1) != 1)
		die("write");
	for (;;) {
		int k = epoll_wait(ep, ev, BATCH, -1);

		for (i = 0; i < k; i++) {
			int64_t c = (int64_t)ev[i].data.u64;
			ssize_t r;

			if (c == LISTENER) {
				for (;;) {
					int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

					if (fd < 0) {
						if (errno != EAGAIN)
							die("accept4");
						break;
					}
					/* Mostly the hello is there already. */
					r = read(fd, hello, sizeof(hello));
					fds[accepted] = fd;
					if (r == HELLO) {
						got[accepted] = HELLO;
						if (write(fd, answer, ANSWER) != ANSWER)
							die("write answer");
					} else if (r >= 0 || errno != EAGAIN) {
						die("read hello");
					}
					watch(ep, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLRDHUP | EPOLLET, accepted);
					accepted++;
				}
				continue;
			}
			r = read(fds[c], hello, sizeof(hello));
			if (r == 0 || (r < 0 && errno != EAGAIN)) { /* the round is over */
				close(fds[c]);
				fds[c] = -1;
				if (--accepted == 0)
					memset(got, 0, n);
			} else if (r > 0) {
				got[c] += r;
				if (got[c] == HELLO && write(fds[c], answer, ANSWER) != ANSWER)
					die("write answer");
			}
		}
	}
}

/* ---- initiator ---- */

static int ep, precreate, eager, n = 8000, window = 256;
static struct sockaddr_in addr;
static int *fds;
static int64_t *begin, *took;
static char *sent;
static const char hello[HELLO] = "hello";

static void create(int c)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);

	if (fd < 0)
		die("socket");
	if (setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one)) ||
	    bind(fd, (struct sockaddr *)&any, sizeof(any)) ||
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
		die("bind");
	fds[c] = fd;
	sent[c] = 0;
	watch(ep, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLRDHUP | EPOLLET | (eager ? 0 : EPOLLOUT), c);
}

static int say(int c)
{
	ssize_t r = write(fds[c], hello, HELLO);

	if (r != HELLO) {
		if (r < 0 && errno == EAGAIN)
			return 0;
		die("write hello");
	}
	sent[c] = 1;
	return 1;
}

static void dial(int c)
{
	if (!precreate)
		create(c);
	begin[c] = now();
	if (connect(fds[c], (struct sockaddr *)&addr, sizeof(addr)) && errno != EINPROGRESS)
		die("connect");
	if (eager && !say(c))
		watch(ep, EPOLL_CTL_MOD, fds[c], EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, c);
}

static int ascending(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static void round_of(void)
{
	struct epoll_event ev[BATCH];
	int begun = 0, done = 0, i;
	int64_t start, end;

	if (precreate) {
		for (i = 0; i < n; i++)
			create(i);
		/* A socket that is not connected reports its hang-up once. */
		while (epoll_wait(ep, ev, BATCH, 0) > 0)
			;
	}
	start = now();
	while (done < n) {
		while (begun < n && (window == 0 || begun - done < window))
			dial(begun++);
		int k = epoll_wait(ep, ev, BATCH, -1);

		for (i = 0; i < k; i++) {
			int c = (int)ev[i].data.u64;
			char answer[ANSWER * 2];

			if (c >= begun)
				continue;
			if (!sent[c]) {
				int err = 0;
				socklen_t len = sizeof(err);

				if (!(ev[i].events & (EPOLLOUT | EPOLLERR)))
					continue;
				getsockopt(fds[c], SOL_SOCKET, SO_ERROR, &err, &len);
				if (err) {
					errno = err;
					die("connect");
				}
				say(c);
				if (!(ev[i].events & EPOLLIN))
					continue;
			}
			if (!(ev[i].events & EPOLLIN))
				continue;
			ssize_t r = read(fds[c], answer, sizeof(answer));

			if (r < 0 && errno == EAGAIN)
				continue;
			if (r != ANSWER)
				die("read answer");
			took[c] = now() - begin[c];
			done++;
		}
	}
	end = now();
	for (i = 0; i < n; i++) {
		shutdown(fds[i], SHUT_WR);
		close(fds[i]);
	}
	qsort(took, n, sizeof(*took), ascending);
	printf("%.0f connections/s  p50 %.1f  p90 %.1f  p99 %.1f  p99.9 %.1f  max %.1f us\n", n / ((end - start) / 1e9),
	       took[n / 2] / 1e3, took[n * 9LL / 10] / 1e3, took[n * 99LL / 100] / 1e3, took[n * 999LL / 1000] / 1e3,
	       took[n - 1] / 1e3);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static const struct option longs[] = {
		{ "precreate", no_argument, &precreate, 1 }, { "eager", no_argument, &eager, 1 }, { 0 }
	};
	int rounds = 1, c, ready[2], listener, one = 1;
	socklen_t len = sizeof(addr);
	pid_t child;
	char b;

	while ((c = getopt_long(argc, argv, "n:w:r:", longs, NULL)) != -1)
		switch (c) {
		case 0: break;
		case 'n': n = atoi(optarg); break;
		case 'w': window = atoi(optarg); break;
		case 'r': rounds = atoi(optarg); break;
		default: fprintf(stderr, "usage: storm [-n connections] [-w window] [-r rounds] [--precreate] [--eager]\n"); return 2;
		}
	if (n < 1 || window < 0 || rounds < 1 || optind != argc) {
		fprintf(stderr, "storm: -n and -r must be at least 1, -w at least 0\n");
		return 2;
	}
	addr.sin_family = AF_INET;
	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
	setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (bind(listener, (struct sockaddr *)&addr, sizeof(addr)) || listen(listener, 65535) ||
	    getsockname(listener, (struct sockaddr *)&addr, &len) || pipe(ready))
		die("listen");
	child = fork();
	if (child < 0)
		die("fork");
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		target(listener, ready[1], n);
	}
	close(listener);
	if (read(ready[0], &b, 1) != 1)
		die("target");
	ep = epoll_create1(EPOLL_CLOEXEC);
	fds = malloc(sizeof(int) * n);
	begin = malloc(sizeof(int64_t) * n);
	took = malloc(sizeof(int64_t) * n);
	sent = malloc(n);
	memset(begin, 1, sizeof(int64_t) * n);
	memset(took, 1, sizeof(int64_t) * n);
	grow_table(n);
	while (rounds--) {
		round_of();
		usleep(200000); /* the target closes its side */
	}
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}
