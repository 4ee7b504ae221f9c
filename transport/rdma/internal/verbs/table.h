/* A worker's connections: identifiers, queue pairs and what they share. */
#ifndef RANKSTORM_TABLE_H
#define RANKSTORM_TABLE_H

#include "lib.h"

#define RSV_PRIVATE 56 /* user bytes of a connect on RDMA_PS_TCP */
#define RSV_RAILS 16   /* devices that one worker's addresses may belong to */
#define RSV_PROBE 16   /* bytes of a probe */

/* What is asked of every connection; -1 leaves it to RDMA CM. */
struct rsv_knobs {
	int32_t tos, sl, mtu, ack_timeout, gid_index;
	int32_t retry_cnt, rnr_retry, min_rnr_timer;
};

/* When a call on a connection began and ended, and its errno. begin 0: it was not made. */
struct rsv_stamp {
	int64_t begin, end;
	int32_t slot, err;
};

/* The stages of a side's way from the peer's word to its own last one. */
enum { RSV_CREATE_QP, RSV_INIT_ATTR, RSV_INIT_QP, RSV_RTR_ATTR, RSV_RTR, RSV_RTS_ATTR, RSV_RTS, RSV_LAST, RSV_STAGES };

struct rsv_stages {
	struct rsv_stamp at[RSV_STAGES];
};

struct rsv_event {
	uint64_t id; /* of a connect request: the new identifier */
	int64_t at;
	int32_t slot;
	uint32_t gen;
	int32_t kind, status;
	uint8_t len, data[RSV_PRIVATE + 7];
};
enum { RSV_EVENT_DATA = offsetof(struct rsv_event, data), RSV_EVENT_KIND = offsetof(struct rsv_event, kind) };

struct rsv_done {
	int64_t at;
	int32_t slot;
	uint32_t gen;
	int32_t status; /* of the work completion */
	int32_t kind;   /* RSV_SENT, RSV_PING, RSV_PONG or RSV_STRANGE */
};
enum { RSV_SENT, RSV_PING, RSV_PONG, RSV_STRANGE };

/* A device that connections of a worker use. */
struct rsv_rail {
	struct rs_ibv_context *verbs;
	struct rs_ibv_pd *pd;
	struct rs_ibv_comp_channel *notify;
	struct rs_ibv_cq *cq;
	struct rs_ibv_mr *mr;
	uint8_t *buffer; /* send and receive of each connection's probe */
	size_t bytes;
	int max_cqe, iwarp, atomics, infiniband;
	unsigned int events; /* completion events to acknowledge */
};

struct rsv_conn {
	struct rs_rdma_cm_id *id;
	struct rs_ibv_qp *qp;
	struct rs_ibv_qp_attr attr;
	int mask;
	uint32_t gen, qpn;
	int16_t rail;
	uint16_t local;
	struct sockaddr_in6 to; /* or a sockaddr_in */
	uint8_t said[RSV_PRIVATE];
};

struct rsv_table {
	struct rs_rdma_event_channel *channel;
	struct rsv_knobs knobs;
	int no_qp;      /* queue pairs are only played: */
	int64_t nap_ns; /* what would be done to one takes so long */
	struct rsv_conn *conns;
	int n, room;
	int rails;
	struct rsv_rail rail[RSV_RAILS];
	struct sockaddr_in6 *local;
	int locals;
};

struct rsv_listener {
	struct rs_rdma_event_channel *channel;
	struct rs_rdma_cm_id *id;
};

/* All return 0 or an errno unless said otherwise; stamps and stages are filled for n connections. */
int rsv_table_new(struct rsv_table **out, const struct rsv_knobs *knobs);
void rsv_table_free(struct rsv_table *t);
int rsv_table_local(struct rsv_table *t, const struct sockaddr_in6 *local, int n, int *which);
int rsv_table_size(struct rsv_table *t, int n);

void rsv_create_ids(struct rsv_table *t, const int32_t *slots, const uint32_t *gens, int n, struct rsv_stamp *out);
void rsv_bind(struct rsv_table *t, const int32_t *slots, int n, struct rsv_stamp *out);
void rsv_resolve_addr(struct rsv_table *t, const int32_t *slots, int n, int timeout_ms, struct rsv_stamp *out);
void rsv_resolve_route(struct rsv_table *t, const int32_t *slots, int n, int timeout_ms, struct rsv_stamp *out);
void rsv_create_qp(struct rsv_table *t, const int32_t *slots, int n, struct rsv_stamp *out);
void rsv_init_attr(struct rsv_table *t, const int32_t *slots, int n, struct rsv_stamp *out);
void rsv_init_qp(struct rsv_table *t, const int32_t *slots, int n, struct rsv_stamp *out);
void rsv_connect(struct rsv_table *t, const int32_t *slots, int n, struct rsv_stamp *out);
void rsv_establish(struct rsv_table *t, const int32_t *slots, int n, struct rsv_stages *out);
int rsv_adopt(struct rsv_table *t, int32_t slot, uint32_t gen, uint64_t id);
void rsv_accept(struct rsv_table *t, int32_t slot, struct rsv_stages *out);
int rsv_reject(uint64_t id, const uint8_t *data, int len);
int rsv_drop(uint64_t id);
void rsv_disconnect(struct rsv_table *t, const int32_t *slots, int n, struct rsv_stamp *out);
void rsv_destroy_qp(struct rsv_table *t, const int32_t *slots, int n, struct rsv_stamp *out);
void rsv_destroy_id(struct rsv_table *t, const int32_t *slots, int n, struct rsv_stamp *out);

void rsv_probe(struct rsv_table *t, const int32_t *slots, int n, int kind, struct rsv_stamp *out);
int rsv_completions(struct rsv_table *t, struct rsv_done *out, int room); /* how many, or -errno */
int rsv_arm(struct rsv_table *t);
void rsv_notified(struct rsv_table *t, int rail);

/* Reads and acknowledges events until there are none or room is full: how many, or -errno. */
int rsv_events(struct rs_rdma_event_channel *channel, struct rsv_event *out, int room);

int rsv_listen(struct rsv_listener *l, const struct rsv_knobs *knobs, const struct sockaddr_in6 *at, int backlog,
	       struct rsv_stamp *out, uint16_t *port);
void rsv_unlisten(struct rsv_listener *l);

/* Binds an identifier to an address and tells the device behind it. */
int rsv_lookup(const struct sockaddr_in6 *at, char *device, int room, int *port_num, int *iwarp, int *max_cqe);

/* The queue pair's attributes as the device has them. */
int rsv_query(struct rsv_table *t, int32_t slot, struct rs_ibv_qp_attr *out);

#endif
