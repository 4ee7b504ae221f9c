/*
 * The structures of libibverbs.so.1 and librdmacm.so.1 that this package
 * touches, as those libraries have kept them since 2010 and promise to keep
 * them. They are declared here so that building needs no headers of theirs;
 * TestABI compares every size and offset with the real ones. The prefix rs_
 * lets both be included in one file.
 */
#ifndef RANKSTORM_ABI_H
#define RANKSTORM_ABI_H

#include <netinet/in.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

union rs_ibv_gid {
	uint8_t raw[16];
	struct {
		uint64_t subnet_prefix;
		uint64_t interface_id;
	} global;
};

struct rs_ibv_device {
	void *ops[2];
	int32_t node_type;
	int32_t transport_type;
	char name[64];
	char dev_name[64];
	char dev_path[256];
	char ibdev_path[256];
};

struct rs_ibv_cq;
struct rs_ibv_qp;
struct rs_ibv_wc;
struct rs_ibv_send_wr;
struct rs_ibv_recv_wr;

/* The calls of the data path are looked up here; the others have symbols. */
struct rs_ibv_context_ops {
	void *compat_a[11];
	int (*poll_cq)(struct rs_ibv_cq *, int, struct rs_ibv_wc *);
	int (*req_notify_cq)(struct rs_ibv_cq *, int);
	void *compat_b[7];
	void *post_srq_recv;
	void *compat_c[4];
	int (*post_send)(struct rs_ibv_qp *, struct rs_ibv_send_wr *, struct rs_ibv_send_wr **);
	int (*post_recv)(struct rs_ibv_qp *, struct rs_ibv_recv_wr *, struct rs_ibv_recv_wr **);
	void *compat_d[5];
};

struct rs_ibv_context {
	struct rs_ibv_device *device;
	struct rs_ibv_context_ops ops;
	int cmd_fd;
	int async_fd;
	int num_comp_vectors;
	pthread_mutex_t mutex;
	void *abi_compat;
};

struct rs_ibv_pd {
	struct rs_ibv_context *context;
	uint32_t handle;
};

struct rs_ibv_mr {
	struct rs_ibv_context *context;
	struct rs_ibv_pd *pd;
	void *addr;
	size_t length;
	uint32_t handle;
	uint32_t lkey;
	uint32_t rkey;
};

struct rs_ibv_comp_channel {
	struct rs_ibv_context *context;
	int fd;
	int refcnt;
};

struct rs_ibv_cq {
	struct rs_ibv_context *context;
	struct rs_ibv_comp_channel *channel;
	void *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed;
	uint32_t async_events_completed;
};

struct rs_ibv_qp {
	struct rs_ibv_context *context;
	void *qp_context;
	struct rs_ibv_pd *pd;
	struct rs_ibv_cq *send_cq;
	struct rs_ibv_cq *recv_cq;
	void *srq;
	uint32_t handle;
	uint32_t qp_num;
	int32_t state;
	int32_t qp_type;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t events_completed;
};

struct rs_ibv_qp_cap {
	uint32_t max_send_wr;
	uint32_t max_recv_wr;
	uint32_t max_send_sge;
	uint32_t max_recv_sge;
	uint32_t max_inline_data;
};

struct rs_ibv_qp_init_attr {
	void *qp_context;
	struct rs_ibv_cq *send_cq;
	struct rs_ibv_cq *recv_cq;
	void *srq;
	struct rs_ibv_qp_cap cap;
	int32_t qp_type;
	int sq_sig_all;
};

struct rs_ibv_global_route {
	union rs_ibv_gid dgid;
	uint32_t flow_label;
	uint8_t sgid_index;
	uint8_t hop_limit;
	uint8_t traffic_class;
};

struct rs_ibv_ah_attr {
	struct rs_ibv_global_route grh;
	uint16_t dlid;
	uint8_t sl;
	uint8_t src_path_bits;
	uint8_t static_rate;
	uint8_t is_global;
	uint8_t port_num;
};

struct rs_ibv_qp_attr {
	int32_t qp_state;
	int32_t cur_qp_state;
	int32_t path_mtu;
	int32_t path_mig_state;
	uint32_t qkey;
	uint32_t rq_psn;
	uint32_t sq_psn;
	uint32_t dest_qp_num;
	unsigned int qp_access_flags;
	struct rs_ibv_qp_cap cap;
	struct rs_ibv_ah_attr ah_attr;
	struct rs_ibv_ah_attr alt_ah_attr;
	uint16_t pkey_index;
	uint16_t alt_pkey_index;
	uint8_t en_sqd_async_notify;
	uint8_t sq_draining;
	uint8_t max_rd_atomic;
	uint8_t max_dest_rd_atomic;
	uint8_t min_rnr_timer;
	uint8_t port_num;
	uint8_t timeout;
	uint8_t retry_cnt;
	uint8_t rnr_retry;
	uint8_t alt_port_num;
	uint8_t alt_timeout;
	uint32_t rate_limit;
};

struct rs_ibv_wc {
	uint64_t wr_id;
	int32_t status;
	int32_t opcode;
	uint32_t vendor_err;
	uint32_t byte_len;
	uint32_t imm_data;
	uint32_t qp_num;
	uint32_t src_qp;
	unsigned int wc_flags;
	uint16_t pkey_index;
	uint16_t slid;
	uint8_t sl;
	uint8_t dlid_path_bits;
};

struct rs_ibv_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct rs_ibv_send_wr {
	uint64_t wr_id;
	struct rs_ibv_send_wr *next;
	struct rs_ibv_sge *sg_list;
	int num_sge;
	int32_t opcode;
	unsigned int send_flags;
	uint32_t imm_data;
	union {
		struct {
			uint64_t remote_addr;
			uint32_t rkey;
		} rdma;
		struct {
			uint64_t remote_addr;
			uint64_t compare_add;
			uint64_t swap;
			uint32_t rkey;
		} atomic;
	} wr;
	uint32_t remote_srqn;
	/* memory windows and TSO, not used */
	uint64_t rest[6];
};

struct rs_ibv_recv_wr {
	uint64_t wr_id;
	struct rs_ibv_recv_wr *next;
	struct rs_ibv_sge *sg_list;
	int num_sge;
};

struct rs_ibv_device_attr {
	char fw_ver[64];
	uint64_t node_guid;
	uint64_t sys_image_guid;
	uint64_t max_mr_size;
	uint64_t page_size_cap;
	uint32_t vendor_id;
	uint32_t vendor_part_id;
	uint32_t hw_ver;
	int max_qp;
	int max_qp_wr;
	unsigned int device_cap_flags;
	int max_sge;
	int max_sge_rd;
	int max_cq;
	int max_cqe;
	int max_mr;
	int max_pd;
	int max_qp_rd_atom;
	int max_ee_rd_atom;
	int max_res_rd_atom;
	int max_qp_init_rd_atom;
	int max_ee_init_rd_atom;
	int32_t atomic_cap;
	int max_ee;
	int max_rdd;
	int max_mw;
	int max_raw_ipv6_qp;
	int max_raw_ethy_qp;
	int max_mcast_grp;
	int max_mcast_qp_attach;
	int max_total_mcast_qp_attach;
	int max_ah;
	int max_fmr;
	int max_map_per_fmr;
	int max_srq;
	int max_srq_wr;
	int max_srq_sge;
	uint16_t max_pkeys;
	uint8_t local_ca_ack_delay;
	uint8_t phys_port_cnt;
};

struct rs_ibv_port_attr {
	int32_t state;
	int32_t max_mtu;
	int32_t active_mtu;
	int gid_tbl_len;
	uint32_t port_cap_flags;
	uint32_t max_msg_sz;
	uint32_t bad_pkey_cntr;
	uint32_t qkey_viol_cntr;
	uint16_t pkey_tbl_len;
	uint16_t lid;
	uint16_t sm_lid;
	uint8_t lmc;
	uint8_t max_vl_num;
	uint8_t sm_sl;
	uint8_t subnet_timeout;
	uint8_t init_type_reply;
	uint8_t active_width;
	uint8_t active_speed;
	uint8_t phys_state;
	uint8_t link_layer;
	uint8_t flags;
	uint16_t port_cap_flags2;
};

struct rs_rdma_ib_addr {
	union rs_ibv_gid sgid;
	union rs_ibv_gid dgid;
	uint16_t pkey;
};

struct rs_rdma_addr {
	union {
		struct sockaddr src_addr;
		struct sockaddr_in src_sin;
		struct sockaddr_in6 src_sin6;
		struct sockaddr_storage src_storage;
	};
	union {
		struct sockaddr dst_addr;
		struct sockaddr_in dst_sin;
		struct sockaddr_in6 dst_sin6;
		struct sockaddr_storage dst_storage;
	};
	union {
		struct rs_rdma_ib_addr ibaddr;
	} addr;
};

struct rs_rdma_route {
	struct rs_rdma_addr addr;
	void *path_rec;
	int num_paths;
};

struct rs_rdma_event_channel {
	int fd;
};

struct rs_rdma_cm_id {
	struct rs_ibv_context *verbs;
	struct rs_rdma_event_channel *channel;
	void *context;
	struct rs_ibv_qp *qp;
	struct rs_rdma_route route;
	int32_t ps;
	uint8_t port_num;
	void *event;
	struct rs_ibv_comp_channel *send_cq_channel;
	struct rs_ibv_cq *send_cq;
	struct rs_ibv_comp_channel *recv_cq_channel;
	struct rs_ibv_cq *recv_cq;
	void *srq;
	struct rs_ibv_pd *pd;
	int32_t qp_type;
};

struct rs_rdma_conn_param {
	const void *private_data;
	uint8_t private_data_len;
	uint8_t responder_resources;
	uint8_t initiator_depth;
	uint8_t flow_control;
	uint8_t retry_count;
	uint8_t rnr_retry_count;
	uint8_t srq;
	uint32_t qp_num;
};

struct rs_rdma_ud_param {
	const void *private_data;
	uint8_t private_data_len;
	struct rs_ibv_ah_attr ah_attr;
	uint32_t qp_num;
	uint32_t qkey;
};

struct rs_rdma_cm_event {
	struct rs_rdma_cm_id *id;
	struct rs_rdma_cm_id *listen_id;
	int32_t event;
	int status;
	union {
		struct rs_rdma_conn_param conn;
		struct rs_rdma_ud_param ud;
	} param;
};

/* Values of the enumerations, checked by the same test. */
#define RS_PS_TCP 0x0106
#define RS_QPT_RC 2
#define RS_QPS_INIT 1
#define RS_QPS_RTR 2
#define RS_QPS_RTS 3
#define RS_QP_STATE (1 << 0)
#define RS_QP_ACCESS_FLAGS (1 << 3)
#define RS_QP_AV (1 << 7)
#define RS_QP_PATH_MTU (1 << 8)
#define RS_QP_TIMEOUT (1 << 9)
#define RS_QP_RETRY_CNT (1 << 10)
#define RS_QP_RNR_RETRY (1 << 11)
#define RS_QP_MIN_RNR_TIMER (1 << 15)
#define RS_ACCESS_LOCAL_WRITE 1
#define RS_ACCESS_REMOTE_WRITE 2
#define RS_ACCESS_REMOTE_READ 4
#define RS_ACCESS_REMOTE_ATOMIC 8
#define RS_WR_SEND 2
#define RS_SEND_SIGNALED 2
#define RS_SEND_SOLICITED 4
#define RS_WC_RECV 128
#define RS_TRANSPORT_IB 0
#define RS_TRANSPORT_IWARP 1
#define RS_ATOMIC_NONE 0
#define RS_OPTION_ID 0
#define RS_OPTION_ID_TOS 0
#define RS_OPTION_ID_ACK_TIMEOUT 3
#define RS_EVENT_ADDR_RESOLVED 0
#define RS_EVENT_ADDR_ERROR 1
#define RS_EVENT_ROUTE_RESOLVED 2
#define RS_EVENT_ROUTE_ERROR 3
#define RS_EVENT_CONNECT_REQUEST 4
#define RS_EVENT_CONNECT_RESPONSE 5
#define RS_EVENT_CONNECT_ERROR 6
#define RS_EVENT_UNREACHABLE 7
#define RS_EVENT_REJECTED 8
#define RS_EVENT_ESTABLISHED 9
#define RS_EVENT_DISCONNECTED 10
#define RS_EVENT_DEVICE_REMOVAL 11
#define RS_EVENT_ADDR_CHANGE 14
#define RS_EVENT_TIMEWAIT_EXIT 15

#endif
