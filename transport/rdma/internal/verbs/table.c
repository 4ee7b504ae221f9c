//go:build cgo

#include "table.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * INT64_C(1000000000) + ts.tv_nsec;
}

/* librdmacm returns -1 and sets errno, libibverbs mostly returns it. */
static int failed(int result)
{
	if (result == -1)
		return errno ? errno : EIO;
	return result < 0 ? -result : result;
}

static int no_object(void) { return errno ? errno : ENOMEM; }

static int nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ? errno : 0;
}

static struct rs_rdma_event_channel *new_channel(int *err)
{
	errno = 0;
	struct rs_rdma_event_channel *c = rsv_lib.rdma_create_event_channel();
	if (!c) {
		*err = no_object();
		return NULL;
	}
	*err = nonblocking(c->fd);
	if (*err) {
		rsv_lib.rdma_destroy_event_channel(c);
		return NULL;
	}
	return c;
}

/* The context that librdmacm hands back with every event: index and generation. */
static void *tag(int32_t slot, uint32_t gen) { return (void *)(uintptr_t)((uint64_t)gen << 32 | (uint32_t)slot); }

int rsv_table_new(struct rsv_table **out, const struct rsv_knobs *knobs)
{
	int err;
	struct rsv_table *t = calloc(1, sizeof *t);

	if (!t)
		return ENOMEM;
	t->knobs = *knobs;
	t->channel = new_channel(&err);
	if (!t->channel) {
		free(t);
		return err;
	}
	*out = t;
	return 0;
}

static void free_shared(struct rsv_rail *r)
{
	if (r->cq) {
		rsv_lib.ibv_ack_cq_events(r->cq, r->events);
		r->events = 0;
		rsv_lib.ibv_destroy_cq(r->cq);
	}
	if (r->mr)
		rsv_lib.ibv_dereg_mr(r->mr);
	if (r->buffer)
		munmap(r->buffer, r->bytes);
	r->cq = NULL;
	r->mr = NULL;
	r->buffer = NULL;
}

void rsv_table_free(struct rsv_table *t)
{
	for (int i = 0; i < t->n; i++) {
		struct rsv_conn *c = &t->conns[i];
		if (c->qp)
			rsv_lib.ibv_destroy_qp(c->qp);
		if (c->id)
			rsv_lib.rdma_destroy_id(c->id);
	}
	for (int i = 0; i < t->rails; i++) {
		struct rsv_rail *r = &t->rail[i];
		free_shared(r);
		if (r->notify)
			rsv_lib.ibv_destroy_comp_channel(r->notify);
		if (r->pd)
			rsv_lib.ibv_dealloc_pd(r->pd);
	}
	rsv_lib.rdma_destroy_event_channel(t->channel);
	free(t->local);
	free(t->conns);
	free(t);
}

/* share makes what the connections of a device have in common, for n of them. */
static int share(struct rsv_rail *r, int n)
{
	int cqe = 2 * (n > 0 ? n : 1);

	free_shared(r);
	if (cqe > r->max_cqe)
		return E2BIG;
	errno = 0;
	r->cq = rsv_lib.ibv_create_cq(r->verbs, cqe, NULL, r->notify, 0);
	if (!r->cq)
		return no_object();
	r->bytes = (size_t)(n > 0 ? n : 1) * 2 * RSV_PROBE;
	r->buffer = mmap(NULL, r->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (r->buffer == MAP_FAILED) {
		r->buffer = NULL;
		return errno;
	}
	errno = 0;
	r->mr = rsv_lib.ibv_reg_mr(r->pd, r->buffer, r->bytes, RS_ACCESS_LOCAL_WRITE);
	return r->mr ? 0 : no_object();
}

static int add_rail(struct rsv_table *t, struct rs_ibv_context *verbs, uint8_t port_num)
{
	struct rs_ibv_device_attr a;
	struct rs_ibv_port_attr p;
	struct rsv_rail *r;
	int err;

	for (int i = 0; i < t->rails; i++)
		if (t->rail[i].verbs == verbs)
			return 0;
	if (t->rails == RSV_RAILS)
		return E2BIG;
	memset(&a, 0, sizeof a);
	memset(&p, 0, sizeof p);
	err = failed(rsv_lib.ibv_query_device(verbs, &a));
	if (!err)
		err = failed(rsv_lib.ibv_query_port(verbs, port_num, &p));
	if (err)
		return err;
	r = &t->rail[t->rails];
	memset(r, 0, sizeof *r);
	r->verbs = verbs;
	r->max_cqe = a.max_cqe;
	r->iwarp = verbs->device->transport_type == RS_TRANSPORT_IWARP;
	r->atomics = a.atomic_cap != RS_ATOMIC_NONE;
	r->infiniband = p.link_layer == 1;
	t->rails++;
	errno = 0;
	r->pd = rsv_lib.ibv_alloc_pd(verbs);
	if (!r->pd)
		return no_object();
	errno = 0;
	r->notify = rsv_lib.ibv_create_comp_channel(verbs);
	if (!r->notify)
		return no_object();
	err = nonblocking(r->notify->fd);
	return err ? err : share(r, 0);
}

/* bound makes an identifier at an address, to learn the device. */
static int bound(struct rs_rdma_event_channel *channel, const struct sockaddr_in6 *at, struct rs_rdma_cm_id **id)
{
	struct sockaddr_in6 copy = *at;
	int err = failed(rsv_lib.rdma_create_id(channel, id, NULL, RS_PS_TCP));

	if (err)
		return err;
	err = failed(rsv_lib.rdma_bind_addr(*id, (struct sockaddr *)&copy));
	if (!err && !(*id)->verbs)
		err = ENODEV; /* a wildcard */
	if (err)
		rsv_lib.rdma_destroy_id(*id);
	return err;
}

int rsv_table_local(struct rsv_table *t, const struct sockaddr_in6 *local, int n, int *which)
{
	t->local = calloc(n, sizeof *t->local);
	if (!t->local)
		return ENOMEM;
	memcpy(t->local, local, n * sizeof *local);
	t->locals = n;
	for (int i = 0; i < n; i++) {
		struct rs_rdma_cm_id *id;
		int err;

		*which = i;
		err = bound(t->channel, &local[i], &id);
		if (err)
			return err;
		err = add_rail(t, id->verbs, id->port_num);
		rsv_lib.rdma_destroy_id(id);
		if (err)
			return err;
	}
	return 0;
}

int rsv_table_size(struct rsv_table *t, int n)
{
	if (n > t->room) {
		struct rsv_conn *more = calloc(n, sizeof *more);
		if (!more)
			return ENOMEM;
		free(t->conns);
		t->conns = more;
		t->room = n;
	}
	memset(t->conns, 0, (size_t)n * sizeof *t->conns); /* touches them, too */
	t->n = n;
	for (int i = 0; i < n; i++)
		t->conns[i].rail = -1;
	for (int i = 0; i < t->rails && !t->no_qp; i++) {
		struct rsv_rail *r = &t->rail[i];
		if (r->cq && r->bytes == (size_t)(n > 0 ? n : 1) * 2 * RSV_PROBE)
			continue;
		int err = share(r, n);
		if (err) {
			share(r, 0);
			t->n = 0;
			return err;
		}
	}
	return 0;
}

static int set_options(struct rs_rdma_cm_id *id, const struct rsv_knobs *k)
{
	int err = 0;

	if (k->tos >= 0) {
		uint8_t tos = k->tos;
		err = failed(rsv_lib.rdma_set_option(id, RS_OPTION_ID, RS_OPTION_ID_TOS, &tos, sizeof tos));
	}
	/* Before resolve route: RoCE makes the path's life time, and with it CM's own timers, from it. */
	if (!err && k->ack_timeout >= 0) {
		uint8_t timeout = k->ack_timeout;
		err = failed(rsv_lib.rdma_set_option(id, RS_OPTION_ID, RS_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout));
	}
	return err;
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

void rsv_create_ids(struct rsv_table *t, const int32_t *slots, const uint32_t *gens, int n, struct rsv_stamp *out)
{
	for (int i = 0; i < n; i++) {
		struct rsv_stamp *s = &out[i];
		struct rsv_conn *c = &t->conns[slots[i]];

		s->slot = slots[i];
		c->gen = gens[i];
		s->begin = now();
		s->err = failed(rsv_lib.rdma_create_id(t->channel, &c->id, tag(slots[i], c->gen), RS_PS_TCP));
		s->end = now();
		if (s->err) {
			c->id = NULL;
			continue;
		}
		s->err = set_options(c->id, &t->knobs); /* not timed */
		if (s->err) {
			rsv_lib.rdma_destroy_id(c->id);
			c->id = NULL;
		}
	}
}

static int16_t rail_of(struct rsv_table *t, struct rs_rdma_cm_id *id)
{
	for (int i = 0; i < t->rails; i++)
		if (t->rail[i].verbs == id->verbs)
			return i;
	return -1;
}

void rsv_bind(struct rsv_table *t, const int32_t *slots, int n, struct rsv_stamp *out)
{
	struct sockaddr_in6 at;

	EACH((at = t->local[c->local], failed(rsv_lib.rdma_bind_addr(c->id, (struct sockaddr *)&at))))
	for (int i = 0; i < n; i++) {
		struct rsv_conn *c = &t->conns[slots[i]];
		if (!out[i].err && (c->rail = rail_of(t, c->id)) < 0)
			out[i].err = ENODEV;
	}
}

void rsv_resolve_addr(struct rsv_table *t, const int32_t *slots, int n, int timeout_ms, struct rsv_stamp *out)
{
	EACH(failed(rsv_lib.rdma_resolve_addr(c->id, NULL, (struct sockaddr *)&c->to, timeout_ms)))
}

void rsv_resolve_route(struct rsv_table *t, const int32_t *slots, int n, int timeout_ms, struct rsv_stamp *out)
{
	EACH(failed(rsv_lib.rdma_resolve_route(c->id, timeout_ms)))
}

/* nap stands for a call on a queue pair that is only played. */
static int nap(struct rsv_table *t)
{
	int64_t until = now() + t->nap_ns;
	struct timespec ts = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};

	if (t->nap_ns > 0)
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
			;
	return 0;
}

static int create_qp(struct rsv_table *t, struct rsv_conn *c)
{
	if (t->no_qp)
		return nap(t);
	struct rsv_rail *r = &t->rail[c->rail];
	struct rs_ibv_qp_init_attr a = {
		.send_cq = r->cq,
		.recv_cq = r->cq,
		.cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = RS_QPT_RC,
		.sq_sig_all = 0,
	};

	errno = 0;
	/* By hand: with rdma_create_qp the library would move the queue pair inside other calls. */
	c->qp = rsv_lib.ibv_create_qp(r->pd, &a);
	if (!c->qp)
		return no_object();
	c->qpn = c->qp->qp_num;
	return 0;
}

void rsv_create_qp(struct rsv_table *t, const int32_t *slots, int n, struct rsv_stamp *out)
{
	EACH(create_qp(t, c))
}

static int fetch(struct rsv_conn *c, int state)
{
	memset(&c->attr, 0, sizeof c->attr);
	c->attr.qp_state = state;
	c->mask = 0;
	return failed(rsv_lib.rdma_init_qp_attr(c->id, &c->attr, &c->mask));
}

void rsv_init_attr(struct rsv_table *t, const int32_t *slots, int n, struct rsv_stamp *out)
{
	EACH(fetch(c, RS_QPS_INIT))
}

static int post_receive(struct rsv_rail *r, struct rsv_conn *c, int32_t slot)
{
	struct rs_ibv_sge sge = {
		.addr = (uintptr_t)(r->buffer + (size_t)slot * 2 * RSV_PROBE + RSV_PROBE), .length = RSV_PROBE, .lkey = r->mr->lkey};
	struct rs_ibv_recv_wr wr = {.wr_id = (uint64_t)c->gen << 32 | (uint32_t)slot, .sg_list = &sge, .num_sge = 1}, *bad;

	return failed(r->verbs->ops.post_recv(c->qp, &wr, &bad));
}

static int to_init(struct rsv_table *t, struct rsv_conn *c)
{
	struct rsv_rail *r = &t->rail[c->rail];

	if (t->no_qp)
		return nap(t);
	/* The kernel gives an initiator no rights for its peer before the connection is up; RTR would keep it so. */
	c->attr.qp_access_flags |= RS_ACCESS_LOCAL_WRITE | RS_ACCESS_REMOTE_WRITE | RS_ACCESS_REMOTE_READ;
	if (r->atomics)
		c->attr.qp_access_flags |= RS_ACCESS_REMOTE_ATOMIC;
	c->mask |= RS_QP_ACCESS_FLAGS;
	return failed(rsv_lib.ibv_modify_qp(c->qp, &c->attr, c->mask));
}

void rsv_init_qp(struct rsv_table *t, const int32_t *slots, int n, struct rsv_stamp *out)
{
	for (int i = 0; i < n; i++) {
		struct rsv_stamp *s = &out[i];
		struct rsv_conn *c = &t->conns[slots[i]];

		s->slot = slots[i];
		s->begin = now();
		s->err = to_init(t, c);
		s->end = now();
		if (!s->err && c->qp) /* not timed; a receive must be there before the peer can send */
			s->err = post_receive(&t->rail[c->rail], c, slots[i]);
	}
}

static int connect_one(struct rsv_table *t, struct rsv_conn *c)
{
	struct rs_rdma_conn_param p = {
		.private_data = c->said, .private_data_len = RSV_PRIVATE,
		.responder_resources = 1, .initiator_depth = 1, .flow_control = 1,
		.retry_count = t->knobs.retry_cnt, .rnr_retry_count = t->knobs.rnr_retry,
		.qp_num = c->qpn,
	};

	return failed(rsv_lib.rdma_connect(c->id, &p));
}

void rsv_connect(struct rsv_table *t, const int32_t *slots, int n, struct rsv_stamp *out)
{
	EACH(connect_one(t, c))
}

/* What the CM does not know, or has to be told otherwise. */
static void amend(struct rsv_table *t, struct rsv_conn *c, int state)
{
	const struct rsv_knobs *k = &t->knobs;

	if (state == RS_QPS_INIT)
		return;
	if (state == RS_QPS_RTR) {
		if (t->rail[c->rail].infiniband)
			c->mask &= ~0xe00000; /* kernels set bits here that only RoCE has */
		if (c->mask & RS_QP_MIN_RNR_TIMER)
			c->attr.min_rnr_timer = k->min_rnr_timer; /* the CM says 0, which is 655 ms */
		if (k->mtu >= 0 && c->mask & RS_QP_PATH_MTU)
			c->attr.path_mtu = k->mtu;
		if (k->sl >= 0 && c->mask & RS_QP_AV)
			c->attr.ah_attr.sl = k->sl;
		if (k->gid_index >= 0 && c->mask & RS_QP_AV && c->attr.ah_attr.is_global)
			c->attr.ah_attr.grh.sgid_index = k->gid_index;
		return;
	}
	if (c->mask & RS_QP_RETRY_CNT)
		c->attr.retry_cnt = k->retry_cnt; /* a target's is ignored by rdma_accept */
	if (c->mask & RS_QP_RNR_RETRY)
		c->attr.rnr_retry = k->rnr_retry;
	if (k->ack_timeout >= 0 && c->mask & RS_QP_TIMEOUT)
		c->attr.timeout = k->ack_timeout;
}

static int timed_fetch(struct rsv_table *t, struct rsv_conn *c, int state, struct rsv_stamp *s)
{
	s->begin = now();
	s->err = fetch(c, state);
	s->end = now();
	if (!s->err)
		amend(t, c, state);
	return s->err;
}

static int timed_modify(struct rsv_table *t, struct rsv_conn *c, struct rsv_stamp *s)
{
	s->begin = now();
	s->err = t->no_qp ? nap(t) : failed(rsv_lib.ibv_modify_qp(c->qp, &c->attr, c->mask));
	s->end = now();
	return s->err;
}

/* ready moves a queue pair to RTR and RTS; 0 or the errno of the stage that failed. */
static int ready(struct rsv_table *t, struct rsv_conn *c, struct rsv_stages *g)
{
	int err = timed_fetch(t, c, RS_QPS_RTR, &g->at[RSV_RTR_ATTR]);

	if (!err)
		err = timed_modify(t, c, &g->at[RSV_RTR]);
	if (!err)
		err = timed_fetch(t, c, RS_QPS_RTS, &g->at[RSV_RTS_ATTR]);
	if (!err)
		err = timed_modify(t, c, &g->at[RSV_RTS]);
	return err;
}

void rsv_establish(struct rsv_table *t, const int32_t *slots, int n, struct rsv_stages *out)
{
	for (int i = 0; i < n; i++) {
		struct rsv_conn *c = &t->conns[slots[i]];
		struct rsv_stages *g = &out[i];
		struct rsv_stamp *last = &g->at[RSV_LAST];

		memset(g, 0, sizeof *g);
		last->slot = slots[i];
		if (ready(t, c, g))
			continue;
		last->begin = now();
		last->err = failed(rsv_lib.rdma_establish(c->id));
		last->end = now();
	}
}

int rsv_adopt(struct rsv_table *t, int32_t slot, uint32_t gen, uint64_t id)
{
	struct rsv_conn *c = &t->conns[slot];

	memset(c, 0, sizeof *c);
	c->id = (struct rs_rdma_cm_id *)(uintptr_t)id;
	c->gen = gen;
	c->id->context = tag(slot, gen); /* it came with the listener's */
	c->rail = rail_of(t, c->id);
	if (c->rail < 0)
		return ENODEV;
	return failed(rsv_lib.rdma_migrate_id(c->id, t->channel));
}

static int prepare_accepted(struct rsv_table *t, struct rsv_conn *c, int32_t slot, struct rsv_stages *g)
{
	struct rsv_stamp *s = &g->at[RSV_CREATE_QP];
	struct rsv_rail *r = &t->rail[c->rail];

	s->begin = now();
	s->err = create_qp(t, c);
	s->end = now();
	if (s->err)
		return s->err;
	if (timed_fetch(t, c, RS_QPS_INIT, &g->at[RSV_INIT_ATTR]))
		return g->at[RSV_INIT_ATTR].err;
	s = &g->at[RSV_INIT_QP];
	s->begin = now();
	s->err = to_init(t, c);
	s->end = now();
	if (s->err)
		return s->err;
	if (c->qp)
		s->err = post_receive(r, c, slot);
	if (s->err)
		return s->err;
	/* The kernel moves queue pairs of iWARP itself, in rdma_accept. */
	return r->iwarp ? 0 : ready(t, c, g);
}

void rsv_accept(struct rsv_table *t, int32_t slot, struct rsv_stages *g)
{
	struct rsv_conn *c = &t->conns[slot];
	struct rsv_stamp *last = &g->at[RSV_LAST];

	memset(g, 0, sizeof *g);
	last->slot = slot;
	if (prepare_accepted(t, c, slot, g))
		return;
	struct rs_rdma_conn_param p = {
		.responder_resources = 1, .initiator_depth = 1, .flow_control = 1,
		.rnr_retry_count = t->knobs.rnr_retry, .qp_num = c->qpn,
	};
	last->begin = now();
	last->err = failed(rsv_lib.rdma_accept(c->id, &p));
	last->end = now();
}

int rsv_reject(uint64_t id, const uint8_t *data, int len)
{
	return failed(rsv_lib.rdma_reject((struct rs_rdma_cm_id *)(uintptr_t)id, data, len));
}

int rsv_drop(uint64_t id) { return failed(rsv_lib.rdma_destroy_id((struct rs_rdma_cm_id *)(uintptr_t)id)); }

void rsv_disconnect(struct rsv_table *t, const int32_t *slots, int n, struct rsv_stamp *out)
{
	EACH(failed(rsv_lib.rdma_disconnect(c->id)))
}

static int destroy_qp(struct rsv_conn *c)
{
	int err = c->qp ? failed(rsv_lib.ibv_destroy_qp(c->qp)) : 0;

	if (!err)
		c->qp = NULL;
	return err;
}

void rsv_destroy_qp(struct rsv_table *t, const int32_t *slots, int n, struct rsv_stamp *out)
{
	EACH(destroy_qp(c))
}

static int destroy_id(struct rsv_conn *c)
{
	int err = c->id ? failed(rsv_lib.rdma_destroy_id(c->id)) : 0;

	c->id = NULL; /* freed whatever the kernel says */
	return err;
}

void rsv_destroy_id(struct rsv_table *t, const int32_t *slots, int n, struct rsv_stamp *out)
{
	EACH(destroy_id(c))
}

static const uint8_t probe_magic[4] = {'R', 'S', 'P', '1'};

static void fill_probe(uint8_t *b, int kind, int32_t slot, uint32_t gen)
{
	uint32_t word = kind;

	memcpy(b, probe_magic, 4);
	memcpy(b + 4, &word, 4);
	memcpy(b + 8, &slot, 4);
	memcpy(b + 12, &gen, 4);
}

static int send_probe(struct rsv_table *t, struct rsv_conn *c, int32_t slot, int kind)
{
	struct rsv_rail *r = &t->rail[c->rail];
	uint8_t *mine = r->buffer + (size_t)slot * 2 * RSV_PROBE, *theirs = mine + RSV_PROBE;
	struct rs_ibv_sge sge = {.addr = (uintptr_t)mine, .length = RSV_PROBE, .lkey = r->mr->lkey};
	struct rs_ibv_send_wr wr, *bad;

	if (kind == RSV_PING) {
		fill_probe(mine, kind, slot, c->gen);
	} else {
		uint32_t word = kind;
		int err;

		memcpy(mine, theirs, RSV_PROBE);
		memcpy(mine + 4, &word, 4);
		err = post_receive(r, c, slot); /* for another probe, before its sender can know */
		if (err)
			return err;
	}
	memset(&wr, 0, sizeof wr);
	wr.wr_id = (uint64_t)c->gen << 32 | (uint32_t)slot;
	wr.sg_list = &sge;
	wr.num_sge = 1;
	wr.opcode = RS_WR_SEND;
	wr.send_flags = RS_SEND_SIGNALED | RS_SEND_SOLICITED;
	return failed(r->verbs->ops.post_send(c->qp, &wr, &bad));
}

void rsv_probe(struct rsv_table *t, const int32_t *slots, int n, int kind, struct rsv_stamp *out)
{
	EACH(send_probe(t, c, slots[i], kind))
}

/* heard says what a received probe is. */
static int heard(struct rsv_table *t, struct rsv_rail *r, int32_t slot, uint32_t bytes)
{
	const uint8_t *mine = r->buffer + (size_t)slot * 2 * RSV_PROBE, *theirs = mine + RSV_PROBE;
	uint32_t kind;

	memcpy(&kind, theirs + 4, 4);
	if (bytes != RSV_PROBE || memcmp(theirs, probe_magic, 4))
		return RSV_STRANGE;
	if (kind == RSV_PONG && !memcmp(mine + 8, theirs + 8, 8)) {
		struct rsv_conn *c = &t->conns[slot];
		return post_receive(r, c, slot) ? RSV_STRANGE : RSV_PONG;
	}
	return kind == RSV_PING ? RSV_PING : RSV_STRANGE;
}

int rsv_completions(struct rsv_table *t, struct rsv_done *out, int room)
{
	struct rs_ibv_wc wc[32];
	int got = 0;

	for (int i = 0; i < t->rails && got < room; i++) {
		struct rsv_rail *r = &t->rail[i];
		int want = room - got < 32 ? room - got : 32;
		int n = r->cq ? r->verbs->ops.poll_cq(r->cq, want, wc) : 0;

		if (n < 0)
			return n == -1 ? -EIO : n;
		int64_t at = n ? now() : 0;
		for (int k = 0; k < n; k++) {
			struct rsv_done *d = &out[got];
			int32_t slot = (uint32_t)wc[k].wr_id;
			uint32_t gen = wc[k].wr_id >> 32;

			if (slot < 0 || slot >= t->n || t->conns[slot].gen != gen || !t->conns[slot].qp)
				continue; /* of a queue pair that is gone */
			d->at = at;
			d->slot = slot;
			d->gen = gen;
			d->status = wc[k].status;
			d->kind = RSV_SENT;
			if (!d->status && wc[k].opcode & RS_WC_RECV)
				d->kind = heard(t, r, slot, wc[k].byte_len);
			if (d->status || d->kind != RSV_SENT)
				got++;
		}
	}
	return got;
}

int rsv_arm(struct rsv_table *t)
{
	int err = 0;

	for (int i = 0; i < t->rails && !err; i++)
		if (t->rail[i].cq)
			err = failed(t->rail[i].verbs->ops.req_notify_cq(t->rail[i].cq, 1));
	return err;
}

void rsv_notified(struct rsv_table *t, int rail)
{
	struct rsv_rail *r = &t->rail[rail];
	struct rs_ibv_cq *cq;
	void *context;

	while (r->notify && !rsv_lib.ibv_get_cq_event(r->notify, &cq, &context))
		r->events++;
}

int rsv_events(struct rs_rdma_event_channel *channel, struct rsv_event *out, int room)
{
	int got = 0;

	while (got < room) {
		struct rs_rdma_cm_event *e;
		struct rsv_event *to = &out[got];

		if (rsv_lib.rdma_get_cm_event(channel, &e)) {
			if (errno == EAGAIN || errno == EINTR)
				break;
			return got ? got : -(errno ? errno : EIO);
		}
		to->at = now();
		uint64_t context = (uintptr_t)e->id->context;
		to->id = (uintptr_t)e->id;
		to->slot = (uint32_t)context;
		to->gen = context >> 32;
		to->kind = e->event;
		to->status = e->status;
		to->len = 0;
		/* The data dies with the acknowledgement. Its length may be more than what was sent. */
		if (e->param.conn.private_data && e->param.conn.private_data_len) {
			int n = e->param.conn.private_data_len;
			to->len = n < RSV_PRIVATE ? n : RSV_PRIVATE;
			memcpy(to->data, e->param.conn.private_data, to->len);
		}
		rsv_lib.rdma_ack_cm_event(e); /* at once: destroying an identifier waits for it */
		got++;
	}
	return got;
}

int rsv_listen(struct rsv_listener *l, const struct rsv_knobs *knobs, const struct sockaddr_in6 *at, int backlog,
	       struct rsv_stamp *out, uint16_t *port)
{
	struct sockaddr_in6 copy = *at;

	out->begin = now();
	l->id = NULL;
	l->channel = new_channel(&out->err);
	if (!l->channel)
		return out->err;
	out->err = failed(rsv_lib.rdma_create_id(l->channel, &l->id, tag(-1, 0), RS_PS_TCP));
	if (out->err)
		l->id = NULL;
	else
		out->err = set_options(l->id, knobs);
	if (!out->err)
		out->err = failed(rsv_lib.rdma_bind_addr(l->id, (struct sockaddr *)&copy));
	if (!out->err)
		out->err = failed(rsv_lib.rdma_listen(l->id, backlog));
	out->end = now();
	if (out->err) {
		rsv_unlisten(l);
		return out->err;
	}
	*port = ntohs(rsv_lib.rdma_get_src_port(l->id));
	return 0;
}

void rsv_unlisten(struct rsv_listener *l)
{
	if (l->id)
		rsv_lib.rdma_destroy_id(l->id);
	if (l->channel)
		rsv_lib.rdma_destroy_event_channel(l->channel);
	l->id = NULL;
	l->channel = NULL;
}

int rsv_lookup(const struct sockaddr_in6 *at, char *device, int room, int *port_num, int *iwarp, int *max_cqe)
{
	struct rs_ibv_device_attr a;
	struct rs_rdma_cm_id *id;
	int err;
	struct rs_rdma_event_channel *channel = new_channel(&err);

	if (!channel)
		return err;
	err = bound(channel, at, &id);
	if (!err) {
		memset(&a, 0, sizeof a);
		strncpy(device, id->verbs->device->name, room - 1);
		device[room - 1] = 0;
		*port_num = id->port_num;
		*iwarp = id->verbs->device->transport_type == RS_TRANSPORT_IWARP;
		err = failed(rsv_lib.ibv_query_device(id->verbs, &a));
		*max_cqe = a.max_cqe;
		rsv_lib.rdma_destroy_id(id);
	}
	rsv_lib.rdma_destroy_event_channel(channel);
	return err;
}

int rsv_query(struct rsv_table *t, int32_t slot, struct rs_ibv_qp_attr *out)
{
	struct rs_ibv_qp_init_attr init;
	struct rsv_conn *c = &t->conns[slot];

	memset(out, 0, sizeof *out);
	return c->qp ? failed(rsv_lib.ibv_query_qp(c->qp, out, RS_QP_STATE | RS_QP_ACCESS_FLAGS | RS_QP_AV | RS_QP_PATH_MTU | RS_QP_TIMEOUT | RS_QP_RETRY_CNT | RS_QP_RNR_RETRY | RS_QP_MIN_RNR_TIMER, &init)) : ENOENT;
}
