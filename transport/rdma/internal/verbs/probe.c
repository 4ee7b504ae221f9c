//go:build cgo

#include "inner.h"

#include <string.h>

int rsv_post_receive(struct rsv_rail *r, struct rsv_conn *c, int32_t slot)
{
	struct rs_ibv_sge sge = {
		.addr = (uintptr_t)(r->buffer + (size_t)slot * 2 * RSV_PROBE + RSV_PROBE), .length = RSV_PROBE, .lkey = r->mr->lkey};
	struct rs_ibv_recv_wr wr = {.wr_id = (uint64_t)c->gen << 32 | (uint32_t)slot, .sg_list = &sge, .num_sge = 1}, *bad;

	return failed(r->verbs->ops.post_recv(c->qp, &wr, &bad));
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
		err = rsv_post_receive(r, c, slot); /* for another probe, before its sender can know */
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
		return rsv_post_receive(r, c, slot) ? RSV_STRANGE : RSV_PONG;
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
