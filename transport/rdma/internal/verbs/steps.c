//go:build cgo

#include "inner.h"

#include <string.h>

int rsv_set_options(struct rs_rdma_cm_id *id, const struct rsv_knobs *k)
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
		s->err = rsv_set_options(c->id, &t->knobs); /* not timed */
		if (s->err) {
			rsv_lib.rdma_destroy_id(c->id);
			c->id = NULL;
		}
	}
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
			s->err = rsv_post_receive(&t->rail[c->rail], c, slots[i]);
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
		s->err = rsv_post_receive(r, c, slot);
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

int rsv_query(struct rsv_table *t, int32_t slot, struct rs_ibv_qp_attr *out)
{
	struct rs_ibv_qp_init_attr init;
	struct rsv_conn *c = &t->conns[slot];

	memset(out, 0, sizeof *out);
	return c->qp ? failed(rsv_lib.ibv_query_qp(c->qp, out, RS_QP_STATE | RS_QP_ACCESS_FLAGS | RS_QP_AV | RS_QP_PATH_MTU | RS_QP_TIMEOUT | RS_QP_RETRY_CNT | RS_QP_RNR_RETRY | RS_QP_MIN_RNR_TIMER, &init)) : ENOENT;
}
