/* Compares abi.h with the real headers; prints what differs. Compiled and run by TestABI. */
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>

#include "abi.h"

static int compared, differ;

static void one(const char *what, unsigned long real, unsigned long ours)
{
	compared++;
	if (real != ours) {
		differ++;
		printf("%s: %lu in the headers, %lu in abi.h\n", what, real, ours);
	}
}

#define SIZE(s) one("size of " #s, sizeof(struct s), sizeof(struct rs_##s))
#define WIDTH(s, f) sizeof(((struct s *)0)->f)
#define AS(s, f, g)                                                                         \
	one("offset of " #s "." #f, offsetof(struct s, f), offsetof(struct rs_##s, g));     \
	one("size of " #s "." #f, WIDTH(s, f), WIDTH(rs_##s, g))
#define FIELD(s, f) AS(s, f, f)
#define VALUE(real, ours) one(#real, (unsigned long)(real), (unsigned long)(ours))

int main(void)
{
	one("size of ibv_gid", sizeof(union ibv_gid), sizeof(union rs_ibv_gid));

	SIZE(ibv_device);
	FIELD(ibv_device, node_type); FIELD(ibv_device, transport_type); FIELD(ibv_device, name);
	FIELD(ibv_device, dev_name); FIELD(ibv_device, dev_path); FIELD(ibv_device, ibdev_path);

	SIZE(ibv_context_ops);
	FIELD(ibv_context_ops, poll_cq); FIELD(ibv_context_ops, req_notify_cq); FIELD(ibv_context_ops, post_srq_recv);
	FIELD(ibv_context_ops, post_send); FIELD(ibv_context_ops, post_recv);

	SIZE(ibv_context);
	FIELD(ibv_context, device); FIELD(ibv_context, ops); FIELD(ibv_context, cmd_fd); FIELD(ibv_context, async_fd);
	FIELD(ibv_context, num_comp_vectors); FIELD(ibv_context, mutex); FIELD(ibv_context, abi_compat);

	SIZE(ibv_pd);
	FIELD(ibv_pd, context); FIELD(ibv_pd, handle);

	SIZE(ibv_mr);
	FIELD(ibv_mr, context); FIELD(ibv_mr, pd); FIELD(ibv_mr, addr); FIELD(ibv_mr, length);
	FIELD(ibv_mr, handle); FIELD(ibv_mr, lkey); FIELD(ibv_mr, rkey);

	SIZE(ibv_comp_channel);
	FIELD(ibv_comp_channel, context); FIELD(ibv_comp_channel, fd); FIELD(ibv_comp_channel, refcnt);

	SIZE(ibv_cq);
	FIELD(ibv_cq, context); FIELD(ibv_cq, channel); FIELD(ibv_cq, cq_context); FIELD(ibv_cq, handle); FIELD(ibv_cq, cqe);
	FIELD(ibv_cq, mutex); FIELD(ibv_cq, cond); FIELD(ibv_cq, comp_events_completed); FIELD(ibv_cq, async_events_completed);

	SIZE(ibv_qp);
	FIELD(ibv_qp, context); FIELD(ibv_qp, qp_context); FIELD(ibv_qp, pd); FIELD(ibv_qp, send_cq); FIELD(ibv_qp, recv_cq);
	FIELD(ibv_qp, srq); FIELD(ibv_qp, handle); FIELD(ibv_qp, qp_num); FIELD(ibv_qp, state); FIELD(ibv_qp, qp_type);
	FIELD(ibv_qp, mutex); FIELD(ibv_qp, cond); FIELD(ibv_qp, events_completed);

	SIZE(ibv_qp_cap);
	FIELD(ibv_qp_cap, max_send_wr); FIELD(ibv_qp_cap, max_recv_wr); FIELD(ibv_qp_cap, max_send_sge);
	FIELD(ibv_qp_cap, max_recv_sge); FIELD(ibv_qp_cap, max_inline_data);

	SIZE(ibv_qp_init_attr);
	FIELD(ibv_qp_init_attr, qp_context); FIELD(ibv_qp_init_attr, send_cq); FIELD(ibv_qp_init_attr, recv_cq);
	FIELD(ibv_qp_init_attr, srq); FIELD(ibv_qp_init_attr, cap); FIELD(ibv_qp_init_attr, qp_type); FIELD(ibv_qp_init_attr, sq_sig_all);

	SIZE(ibv_global_route);
	FIELD(ibv_global_route, dgid); FIELD(ibv_global_route, flow_label); FIELD(ibv_global_route, sgid_index);
	FIELD(ibv_global_route, hop_limit); FIELD(ibv_global_route, traffic_class);

	SIZE(ibv_ah_attr);
	FIELD(ibv_ah_attr, grh); FIELD(ibv_ah_attr, dlid); FIELD(ibv_ah_attr, sl); FIELD(ibv_ah_attr, src_path_bits);
	FIELD(ibv_ah_attr, static_rate); FIELD(ibv_ah_attr, is_global); FIELD(ibv_ah_attr, port_num);

	SIZE(ibv_qp_attr);
	FIELD(ibv_qp_attr, qp_state); FIELD(ibv_qp_attr, cur_qp_state); FIELD(ibv_qp_attr, path_mtu); FIELD(ibv_qp_attr, path_mig_state);
	FIELD(ibv_qp_attr, qkey); FIELD(ibv_qp_attr, rq_psn); FIELD(ibv_qp_attr, sq_psn); FIELD(ibv_qp_attr, dest_qp_num);
	FIELD(ibv_qp_attr, qp_access_flags); FIELD(ibv_qp_attr, cap); FIELD(ibv_qp_attr, ah_attr); FIELD(ibv_qp_attr, alt_ah_attr);
	FIELD(ibv_qp_attr, pkey_index); FIELD(ibv_qp_attr, alt_pkey_index); FIELD(ibv_qp_attr, en_sqd_async_notify);
	FIELD(ibv_qp_attr, sq_draining); FIELD(ibv_qp_attr, max_rd_atomic); FIELD(ibv_qp_attr, max_dest_rd_atomic);
	FIELD(ibv_qp_attr, min_rnr_timer); FIELD(ibv_qp_attr, port_num); FIELD(ibv_qp_attr, timeout); FIELD(ibv_qp_attr, retry_cnt);
	FIELD(ibv_qp_attr, rnr_retry); FIELD(ibv_qp_attr, alt_port_num); FIELD(ibv_qp_attr, alt_timeout); FIELD(ibv_qp_attr, rate_limit);

	SIZE(ibv_wc);
	FIELD(ibv_wc, wr_id); FIELD(ibv_wc, status); FIELD(ibv_wc, opcode); FIELD(ibv_wc, vendor_err); FIELD(ibv_wc, byte_len);
	FIELD(ibv_wc, imm_data); FIELD(ibv_wc, qp_num); FIELD(ibv_wc, src_qp); FIELD(ibv_wc, wc_flags); FIELD(ibv_wc, pkey_index);
	FIELD(ibv_wc, slid); FIELD(ibv_wc, sl); FIELD(ibv_wc, dlid_path_bits);

	SIZE(ibv_sge);
	FIELD(ibv_sge, addr); FIELD(ibv_sge, length); FIELD(ibv_sge, lkey);

	SIZE(ibv_send_wr);
	FIELD(ibv_send_wr, wr_id); FIELD(ibv_send_wr, next); FIELD(ibv_send_wr, sg_list); FIELD(ibv_send_wr, num_sge);
	FIELD(ibv_send_wr, opcode); FIELD(ibv_send_wr, send_flags); FIELD(ibv_send_wr, imm_data);
	FIELD(ibv_send_wr, wr.rdma.remote_addr); FIELD(ibv_send_wr, wr.rdma.rkey); FIELD(ibv_send_wr, wr.atomic.remote_addr);
	FIELD(ibv_send_wr, wr.atomic.compare_add); FIELD(ibv_send_wr, wr.atomic.swap); FIELD(ibv_send_wr, wr.atomic.rkey);
	AS(ibv_send_wr, qp_type.xrc.remote_srqn, remote_srqn);

	SIZE(ibv_recv_wr);
	FIELD(ibv_recv_wr, wr_id); FIELD(ibv_recv_wr, next); FIELD(ibv_recv_wr, sg_list); FIELD(ibv_recv_wr, num_sge);

	SIZE(ibv_device_attr);
	FIELD(ibv_device_attr, fw_ver); FIELD(ibv_device_attr, node_guid); FIELD(ibv_device_attr, max_mr_size);
	FIELD(ibv_device_attr, vendor_id); FIELD(ibv_device_attr, vendor_part_id); FIELD(ibv_device_attr, max_qp);
	FIELD(ibv_device_attr, max_qp_wr); FIELD(ibv_device_attr, max_sge); FIELD(ibv_device_attr, max_cq); FIELD(ibv_device_attr, max_cqe);
	FIELD(ibv_device_attr, max_mr); FIELD(ibv_device_attr, max_pd); FIELD(ibv_device_attr, max_qp_rd_atom);
	FIELD(ibv_device_attr, max_qp_init_rd_atom); FIELD(ibv_device_attr, atomic_cap); FIELD(ibv_device_attr, max_ah);
	FIELD(ibv_device_attr, max_srq); FIELD(ibv_device_attr, max_pkeys); FIELD(ibv_device_attr, local_ca_ack_delay);
	FIELD(ibv_device_attr, phys_port_cnt);

	SIZE(ibv_port_attr);
	FIELD(ibv_port_attr, state); FIELD(ibv_port_attr, max_mtu); FIELD(ibv_port_attr, active_mtu); FIELD(ibv_port_attr, gid_tbl_len);
	FIELD(ibv_port_attr, port_cap_flags); FIELD(ibv_port_attr, max_msg_sz); FIELD(ibv_port_attr, lid); FIELD(ibv_port_attr, sm_lid);
	FIELD(ibv_port_attr, subnet_timeout); FIELD(ibv_port_attr, active_width); FIELD(ibv_port_attr, active_speed);
	FIELD(ibv_port_attr, phys_state); FIELD(ibv_port_attr, link_layer); FIELD(ibv_port_attr, flags); FIELD(ibv_port_attr, port_cap_flags2);

	SIZE(rdma_addr);
	FIELD(rdma_addr, src_addr); FIELD(rdma_addr, dst_addr); FIELD(rdma_addr, addr.ibaddr.sgid); FIELD(rdma_addr, addr.ibaddr.dgid);
	FIELD(rdma_addr, addr.ibaddr.pkey);

	SIZE(rdma_route);
	FIELD(rdma_route, addr); FIELD(rdma_route, path_rec); FIELD(rdma_route, num_paths);

	SIZE(rdma_event_channel);
	FIELD(rdma_event_channel, fd);

	SIZE(rdma_cm_id);
	FIELD(rdma_cm_id, verbs); FIELD(rdma_cm_id, channel); FIELD(rdma_cm_id, context); FIELD(rdma_cm_id, qp); FIELD(rdma_cm_id, route);
	FIELD(rdma_cm_id, ps); FIELD(rdma_cm_id, port_num); FIELD(rdma_cm_id, event); FIELD(rdma_cm_id, send_cq_channel);
	FIELD(rdma_cm_id, send_cq); FIELD(rdma_cm_id, recv_cq_channel); FIELD(rdma_cm_id, recv_cq); FIELD(rdma_cm_id, srq);
	FIELD(rdma_cm_id, pd); FIELD(rdma_cm_id, qp_type);

	SIZE(rdma_conn_param);
	FIELD(rdma_conn_param, private_data); FIELD(rdma_conn_param, private_data_len); FIELD(rdma_conn_param, responder_resources);
	FIELD(rdma_conn_param, initiator_depth); FIELD(rdma_conn_param, flow_control); FIELD(rdma_conn_param, retry_count);
	FIELD(rdma_conn_param, rnr_retry_count); FIELD(rdma_conn_param, srq); FIELD(rdma_conn_param, qp_num);

	SIZE(rdma_ud_param);
	SIZE(rdma_cm_event);
	FIELD(rdma_cm_event, id); FIELD(rdma_cm_event, listen_id); FIELD(rdma_cm_event, event); FIELD(rdma_cm_event, status);
	FIELD(rdma_cm_event, param.conn); FIELD(rdma_cm_event, param.ud);

	VALUE(RDMA_PS_TCP, RS_PS_TCP);
	VALUE(IBV_QPT_RC, RS_QPT_RC);
	VALUE(IBV_QPS_INIT, RS_QPS_INIT); VALUE(IBV_QPS_RTR, RS_QPS_RTR); VALUE(IBV_QPS_RTS, RS_QPS_RTS);
	VALUE(IBV_QP_STATE, RS_QP_STATE); VALUE(IBV_QP_ACCESS_FLAGS, RS_QP_ACCESS_FLAGS); VALUE(IBV_QP_AV, RS_QP_AV);
	VALUE(IBV_QP_PATH_MTU, RS_QP_PATH_MTU); VALUE(IBV_QP_TIMEOUT, RS_QP_TIMEOUT); VALUE(IBV_QP_RETRY_CNT, RS_QP_RETRY_CNT);
	VALUE(IBV_QP_RNR_RETRY, RS_QP_RNR_RETRY); VALUE(IBV_QP_MIN_RNR_TIMER, RS_QP_MIN_RNR_TIMER);
	VALUE(IBV_ACCESS_LOCAL_WRITE, RS_ACCESS_LOCAL_WRITE); VALUE(IBV_ACCESS_REMOTE_WRITE, RS_ACCESS_REMOTE_WRITE);
	VALUE(IBV_ACCESS_REMOTE_READ, RS_ACCESS_REMOTE_READ); VALUE(IBV_ACCESS_REMOTE_ATOMIC, RS_ACCESS_REMOTE_ATOMIC);
	VALUE(IBV_WR_SEND, RS_WR_SEND); VALUE(IBV_SEND_SIGNALED, RS_SEND_SIGNALED); VALUE(IBV_SEND_SOLICITED, RS_SEND_SOLICITED); VALUE(IBV_WC_RECV, RS_WC_RECV);
	VALUE(IBV_TRANSPORT_IB, RS_TRANSPORT_IB); VALUE(IBV_TRANSPORT_IWARP, RS_TRANSPORT_IWARP); VALUE(IBV_ATOMIC_NONE, RS_ATOMIC_NONE);
	VALUE(RDMA_OPTION_ID, RS_OPTION_ID); VALUE(RDMA_OPTION_ID_TOS, RS_OPTION_ID_TOS);
	VALUE(RDMA_OPTION_ID_ACK_TIMEOUT, RS_OPTION_ID_ACK_TIMEOUT);
	VALUE(RDMA_CM_EVENT_CONNECT_REQUEST, RS_EVENT_CONNECT_REQUEST);
	VALUE(RDMA_CM_EVENT_ADDR_RESOLVED, RS_EVENT_ADDR_RESOLVED); VALUE(RDMA_CM_EVENT_ADDR_ERROR, RS_EVENT_ADDR_ERROR);
	VALUE(RDMA_CM_EVENT_ROUTE_RESOLVED, RS_EVENT_ROUTE_RESOLVED); VALUE(RDMA_CM_EVENT_ROUTE_ERROR, RS_EVENT_ROUTE_ERROR);
	VALUE(RDMA_CM_EVENT_CONNECT_RESPONSE, RS_EVENT_CONNECT_RESPONSE); VALUE(RDMA_CM_EVENT_CONNECT_ERROR, RS_EVENT_CONNECT_ERROR);
	VALUE(RDMA_CM_EVENT_UNREACHABLE, RS_EVENT_UNREACHABLE); VALUE(RDMA_CM_EVENT_REJECTED, RS_EVENT_REJECTED);
	VALUE(RDMA_CM_EVENT_ESTABLISHED, RS_EVENT_ESTABLISHED); VALUE(RDMA_CM_EVENT_DISCONNECTED, RS_EVENT_DISCONNECTED);
	VALUE(RDMA_CM_EVENT_DEVICE_REMOVAL, RS_EVENT_DEVICE_REMOVAL); VALUE(RDMA_CM_EVENT_ADDR_CHANGE, RS_EVENT_ADDR_CHANGE);
	VALUE(RDMA_CM_EVENT_TIMEWAIT_EXIT, RS_EVENT_TIMEWAIT_EXIT);

	printf("%d compared, %d differ\n", compared, differ);
	return differ != 0;
}
