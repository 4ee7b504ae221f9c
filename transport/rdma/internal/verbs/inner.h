/* What the C files of this package share. */
#ifndef RANKSTORM_INNER_H
#define RANKSTORM_INNER_H

#include "table.h"

#include <errno.h>
#include <time.h>

static inline int64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

/* librdmacm returns -1 and sets errno, libibverbs mostly returns it. */
static inline int failed(int result)
{
	if (result == -1)
		return errno ? errno : EIO;
	return result < 0 ? -result : result;
}

static inline int no_object(void) { return errno ? errno : ENOMEM; }

/* The context that librdmacm hands back with every event: index and generation. */
static inline void *tag(int32_t slot, uint32_t gen) { return (void *)(uintptr_t)((uint64_t)gen << 32 | (uint32_t)slot); }

static inline int16_t rail_of(struct rsv_table *t, struct rs_rdma_cm_id *id)
{
	for (int i = 0; i < t->rails; i++)
		if (t->rail[i].verbs == id->verbs)
			return i;
	return -1;
}

/* Every step on a range: stamps around the call that body makes. */
#define EACH(body)                                     \
	for (int i = 0; i < n; i++) {                  \
		struct rsv_stamp *s = &out[i];         \
		struct rsv_conn *c = &t->conns[slots[i]]; \
		s->slot = slots[i];                    \
		s->begin = now();                      \
		s->err = (body);                       \
		s->end = now();                        \
	}

int rsv_set_options(struct rs_rdma_cm_id *id, const struct rsv_knobs *k);
int rsv_post_receive(struct rsv_rail *r, struct rsv_conn *c, int32_t slot);

#endif
