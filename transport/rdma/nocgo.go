//go:build !cgo

package rdma

import "rankstorm/transport"

func (*settings) check() error { return Usable() }

func open(settings, transport.Config) (transport.Endpoint, error) { return nil, Usable() }
