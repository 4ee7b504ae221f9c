package runner

import "rankstorm/transport"

// tampered is a provider each of whose workers is replaced by what wrap makes of it, and what it counts changed by count.
type tampered struct {
	transport.Provider
	wrap  func(transport.Worker) transport.Worker
	count func(*transport.Counters) // nil: no change
}

func (p tampered) Open(c transport.Config) (transport.Endpoint, error) {
	ep, err := p.Provider.Open(c)
	if err != nil {
		return nil, err
	}
	e := tamperedEndpoint{Endpoint: ep, count: p.count}
	for i := range ep.Workers() {
		e.workers = append(e.workers, p.wrap(ep.Worker(i)))
	}
	return e, nil
}

type tamperedEndpoint struct {
	transport.Endpoint
	workers []transport.Worker
	count   func(*transport.Counters)
}

func (e tamperedEndpoint) Worker(i int) transport.Worker { return e.workers[i] }

func (e tamperedEndpoint) Counters() transport.Counters {
	c := e.Endpoint.Counters()
	if e.count != nil {
		e.count(&c)
	}
	return c
}

// hooked is a worker that does something else before a call; nil: nothing.
type hooked struct {
	transport.Worker
	reserve func()
	start   func(transport.Step)
}

func (w hooked) Reserve(out, in int) error {
	if w.reserve != nil {
		w.reserve()
	}
	return w.Worker.Reserve(out, in)
}

func (w hooked) Start(s transport.Step, first transport.Conn, n int, due []int64) (int, error) {
	if w.start != nil {
		w.start(s)
	}
	return w.Worker.Start(s, first, n, due)
}
