//go:build cgo

#include "lib.h"

#include <dlfcn.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

struct rsv_lib rsv_lib;

int rsv_open(char *why, int room)
{
	static int loaded;
	struct rsv_lib l;
	const char *missing = NULL, *of = NULL;

	if (loaded)
		return 0;
	void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (!verbs) {
		snprintf(why, room, "%s", dlerror());
		return 1;
	}
	void *cm = dlopen("librdmacm.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (!cm) {
		snprintf(why, room, "%s", dlerror());
		dlclose(verbs);
		return 2;
	}
	memset(&l, 0, sizeof l);
#define RSV_LOOK(result, name, args)                     \
	if (!(*(void **)&l.name = dlsym(handle, #name))) \
		missing = #name, of = file;
	{
		void *handle = verbs;
		const char *file = "libibverbs.so.1";
		RSV_VERBS(RSV_LOOK)
	}
	{
		void *handle = cm;
		const char *file = "librdmacm.so.1";
		RSV_CM(RSV_LOOK)
	}
#undef RSV_LOOK
	if (missing) {
		snprintf(why, room, "%s has no %s", of, missing);
		dlclose(cm);
		dlclose(verbs);
		return 3;
	}
	/* Both stay open: librdmacm keeps contexts of the devices for the life of the process. */
	rsv_lib = l;
	loaded = 1;
	return 0;
}

static void describe(struct rs_ibv_device *from, struct rsv_device *to)
{
	struct rs_ibv_device_attr a;
	struct rs_ibv_context *ctx;

	memset(to, 0, sizeof *to);
	snprintf(to->name, sizeof to->name, "%.63s", from->name);
	to->transport = from->transport_type;
	to->node_guid = be64toh(rsv_lib.ibv_get_device_guid(from));
	errno = 0;
	ctx = rsv_lib.ibv_open_device(from);
	if (!ctx) {
		to->open_errno = errno ? errno : ENODEV;
		return;
	}
	memset(&a, 0, sizeof a);
	to->open_errno = rsv_lib.ibv_query_device(ctx, &a);
	if (to->open_errno) {
		rsv_lib.ibv_close_device(ctx);
		return;
	}
	snprintf(to->firmware, sizeof to->firmware, "%.63s", a.fw_ver);
	to->vendor_id = a.vendor_id;
	to->vendor_part_id = a.vendor_part_id;
	to->max_qp = a.max_qp;
	to->max_qp_wr = a.max_qp_wr;
	to->max_sge = a.max_sge;
	to->max_cq = a.max_cq;
	to->max_cqe = a.max_cqe;
	to->max_mr = a.max_mr;
	to->max_pd = a.max_pd;
	to->max_ah = a.max_ah;
	to->max_qp_rd_atom = a.max_qp_rd_atom;
	to->max_qp_init_rd_atom = a.max_qp_init_rd_atom;
	to->atomic_cap = a.atomic_cap;
	to->max_mr_size = a.max_mr_size;
	to->ports = a.phys_port_cnt;
	for (int i = 0; i < a.phys_port_cnt && i < (int)(sizeof to->port / sizeof to->port[0]); i++) {
		struct rs_ibv_port_attr p;

		memset(&p, 0, sizeof p);
		if (rsv_lib.ibv_query_port(ctx, i + 1, &p))
			continue;
		to->port[i].state = p.state;
		to->port[i].phys_state = p.phys_state;
		to->port[i].link_layer = p.link_layer;
		to->port[i].max_mtu = p.max_mtu;
		to->port[i].active_mtu = p.active_mtu;
		to->port[i].gid_tbl_len = p.gid_tbl_len;
		to->port[i].lid = p.lid;
	}
	rsv_lib.ibv_close_device(ctx);
}

int rsv_devices(struct rsv_device *out, int room)
{
	int n = 0;

	errno = 0;
	struct rs_ibv_device **list = rsv_lib.ibv_get_device_list(&n);
	if (!list)
		return errno ? -errno : -ENODEV;
	for (int i = 0; i < n && i < room; i++)
		describe(list[i], &out[i]);
	rsv_lib.ibv_free_device_list(list);
	return n;
}
