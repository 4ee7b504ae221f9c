// Package rdma connects ranks through RDMA CM: librdmacm and libibverbs, which
// are opened at run time.
package rdma
