/* The two libraries, opened at run time, and what this package calls of them. */
#ifndef RANKSTORM_LIB_H
#define RANKSTORM_LIB_H

#include "abi.h"

/* Functions of libibverbs and librdmacm: result, name, arguments. */
#define RSV_VERBS(F)                                                                                     \
	F(struct rs_ibv_device **, ibv_get_device_list, (int *))                                         \
	F(void, ibv_free_device_list, (struct rs_ibv_device **))                                         \
	F(uint64_t, ibv_get_device_guid, (struct rs_ibv_device *))                                       \
	F(struct rs_ibv_context *, ibv_open_device, (struct rs_ibv_device *))                            \
	F(int, ibv_close_device, (struct rs_ibv_context *))                                              \
	F(int, ibv_query_device, (struct rs_ibv_context *, struct rs_ibv_device_attr *))                 \
	F(int, ibv_query_port, (struct rs_ibv_context *, uint8_t, struct rs_ibv_port_attr *))            \
	F(struct rs_ibv_pd *, ibv_alloc_pd, (struct rs_ibv_context *))                                   \
	F(int, ibv_dealloc_pd, (struct rs_ibv_pd *))                                                     \
	F(struct rs_ibv_mr *, ibv_reg_mr, (struct rs_ibv_pd *, void *, size_t, int))                     \
	F(int, ibv_dereg_mr, (struct rs_ibv_mr *))                                                       \
	F(struct rs_ibv_comp_channel *, ibv_create_comp_channel, (struct rs_ibv_context *))              \
	F(int, ibv_destroy_comp_channel, (struct rs_ibv_comp_channel *))                                 \
	F(struct rs_ibv_cq *, ibv_create_cq,                                                             \
	  (struct rs_ibv_context *, int, void *, struct rs_ibv_comp_channel *, int))                     \
	F(int, ibv_destroy_cq, (struct rs_ibv_cq *))                                                     \
	F(int, ibv_get_cq_event, (struct rs_ibv_comp_channel *, struct rs_ibv_cq **, void **))           \
	F(void, ibv_ack_cq_events, (struct rs_ibv_cq *, unsigned int))                                   \
	F(struct rs_ibv_qp *, ibv_create_qp, (struct rs_ibv_pd *, struct rs_ibv_qp_init_attr *))         \
	F(int, ibv_modify_qp, (struct rs_ibv_qp *, struct rs_ibv_qp_attr *, int))                        \
	F(int, ibv_query_qp, (struct rs_ibv_qp *, struct rs_ibv_qp_attr *, int, struct rs_ibv_qp_init_attr *)) \
	F(int, ibv_destroy_qp, (struct rs_ibv_qp *))

#define RSV_CM(F)                                                                                        \
	F(struct rs_rdma_event_channel *, rdma_create_event_channel, (void))                             \
	F(void, rdma_destroy_event_channel, (struct rs_rdma_event_channel *))                            \
	F(int, rdma_create_id, (struct rs_rdma_event_channel *, struct rs_rdma_cm_id **, void *, int))   \
	F(int, rdma_destroy_id, (struct rs_rdma_cm_id *))                                                \
	F(int, rdma_bind_addr, (struct rs_rdma_cm_id *, struct sockaddr *))                              \
	F(int, rdma_listen, (struct rs_rdma_cm_id *, int))                                               \
	F(int, rdma_resolve_addr, (struct rs_rdma_cm_id *, struct sockaddr *, struct sockaddr *, int))   \
	F(int, rdma_resolve_route, (struct rs_rdma_cm_id *, int))                                        \
	F(int, rdma_connect, (struct rs_rdma_cm_id *, struct rs_rdma_conn_param *))                      \
	F(int, rdma_accept, (struct rs_rdma_cm_id *, struct rs_rdma_conn_param *))                       \
	F(int, rdma_reject, (struct rs_rdma_cm_id *, const void *, uint8_t))                             \
	F(int, rdma_establish, (struct rs_rdma_cm_id *))                                                 \
	F(int, rdma_disconnect, (struct rs_rdma_cm_id *))                                                \
	F(int, rdma_init_qp_attr, (struct rs_rdma_cm_id *, struct rs_ibv_qp_attr *, int *))              \
	F(int, rdma_get_cm_event, (struct rs_rdma_event_channel *, struct rs_rdma_cm_event **))          \
	F(int, rdma_ack_cm_event, (struct rs_rdma_cm_event *))                                           \
	F(int, rdma_migrate_id, (struct rs_rdma_cm_id *, struct rs_rdma_event_channel *))                \
	F(int, rdma_set_option, (struct rs_rdma_cm_id *, int, int, void *, size_t))                      \
	F(uint16_t, rdma_get_src_port, (struct rs_rdma_cm_id *))

struct rsv_lib {
#define RSV_FIELD(result, name, args) result(*name) args;
	RSV_VERBS(RSV_FIELD)
	RSV_CM(RSV_FIELD)
#undef RSV_FIELD
};

extern struct rsv_lib rsv_lib;

/* rsv_open fills rsv_lib once. 0, or what is wrong in why (one line) with
 * which = 1 for libibverbs, 2 for librdmacm. Not for concurrent use. */
int rsv_open(char *why, int room);

/* What rsv_devices tells of a device; integers in host byte order. */
struct rsv_device {
	char name[64];
	char firmware[64];
	int32_t transport;
	int32_t open_errno; /* not 0: the device could not be opened, what follows is empty */
	uint64_t node_guid;
	uint32_t vendor_id, vendor_part_id;
	int32_t max_qp, max_qp_wr, max_sge, max_cq, max_cqe, max_mr, max_pd, max_ah;
	int32_t max_qp_rd_atom, max_qp_init_rd_atom, atomic_cap, ports;
	uint64_t max_mr_size;
	struct {
		int32_t state, phys_state, link_layer, max_mtu, active_mtu, gid_tbl_len;
		uint16_t lid;
	} port[8];
};

/* rsv_devices fills at most room entries and returns how many devices there
 * are, or -errno. */
int rsv_devices(struct rsv_device *out, int room);

#endif
