//go:build cgo

#include "inner.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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
		out->err = rsv_set_options(l->id, knobs);
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
