package sim

import (
	"slices"
	"sync"
	"time"

	"rankstorm/transport"
)

// FabricConfig says how a fabric behaves. The zero value is a lossless network
// without delay and without costs, with the steps of TCP. Runs are
// reproducible from Seed in a bubble if Latency is above 0.
type FabricConfig struct {
	Seed  uint64
	Steps transport.StepSet // StepsTCP, StepsRDMA or a subset of the latter with the same handshake; 0: StepsTCP

	Latency time.Duration // one way
	Jitter  time.Duration // each packet takes up to this much longer, evenly spread
	// Loss is the share of packets lost, 0 … 1. A lost set-up request is sent again by its retry timer; any
	// other lost packet arrives later by DataRetry, as a reliable transport below would have it.
	Loss float64

	// Retry is the wait before a set-up request is sent again. 0: 1 s, doubling, for StepsTCP; 6.144 s, constant, for StepsRDMA.
	Retry time.Duration
	// Retries is how often; then the connect fails with CauseTimeout. 0: 6 for StepsTCP, 15 for StepsRDMA.
	Retries   int
	DataRetry time.Duration // 0: 200 ms; doubles while a partition lasts

	// PerConnCost is the worker time that every step on a connection takes for which Costs says 0.
	PerConnCost time.Duration
	// Costs is the worker time of single steps. Asynchronous steps (resolve with StepsRDMA) take that long
	// without occupying the worker.
	Costs [transport.StepCount]time.Duration

	MaxBacklog int // cap of Listen's backlog and its value for 0; 0: 4096
	// QueueDepth bounds what one worker may have begun and not reported; Start answers ErrAgain beyond. 0: no bound.
	QueueDepth int
}

// Fabric joins endpoints by address. Its methods are safe for concurrent use.
type Fabric struct {
	cfg  FabricConfig
	rdma bool
	base time.Time

	mu        sync.Mutex
	queue     packetHeap
	timer     *time.Timer // AfterFunc: no goroutine waits, so a bubble may end at any time
	armed     int64       // when the timer fires, 0: not armed
	endpoints []*Endpoint // open ones
	hosts     map[string]bool
	sites     map[string]*site
	ports     map[string]int
	cuts      []cut
	detours   []detour
}

// site is an address that somebody listens at, did, or was asked for.
type site struct {
	addr, host string
	ep         *Endpoint // nil: nobody listens
}

type cut struct{ a, b map[string]bool }

// detour is a way that takes set-up requests longer.
type detour struct {
	cut
	extra time.Duration
}

// NewFabric makes a fabric. It starts nothing and needs no close.
func NewFabric(c FabricConfig) *Fabric {
	if c.Steps == 0 {
		c.Steps = StepsTCP
	}
	rdma := c.Steps.Has(transport.StepRTR)
	if c.Retry <= 0 {
		c.Retry = time.Second
		if rdma {
			c.Retry = 6144 * time.Millisecond
		}
	}
	if c.Retries <= 0 {
		c.Retries = 6
		if rdma {
			c.Retries = 15
		}
	}
	if c.DataRetry <= 0 {
		c.DataRetry = 200 * time.Millisecond
	}
	if c.MaxBacklog <= 0 {
		c.MaxBacklog = 4096
	}
	for s := range c.Costs {
		if c.Costs[s] <= 0 {
			c.Costs[s] = c.PerConnCost
		}
	}
	return &Fabric{
		cfg: c, rdma: rdma, base: time.Now(),
		hosts: map[string]bool{}, sites: map[string]*site{}, ports: map[string]int{},
	}
}

// now is the fabric's own time: endpoints may have clocks that disagree.
func (f *Fabric) now() int64 { return int64(time.Since(f.base)) }

// Pause stops the endpoints of that Config.Name or Config.Advertise as SIGSTOP
// would: their workers see nothing, while requests go on filling their backlog.
func (f *Fabric) Pause(name string) { f.setPaused(name, true) }

// Resume ends Pause.
func (f *Fabric) Resume(name string) { f.setPaused(name, false) }

func (f *Fabric) setPaused(name string, paused bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.endpoints {
		if e.called(name) {
			e.paused = paused
			e.nudgeAll()
		}
	}
}

// Kill ends the endpoints so called, as for Pause, as SIGKILL would: their connections are
// reset, their listeners are gone, their workers answer with an error. Close
// remains to be called by the owner and does nothing more.
func (f *Fabric) Kill(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range slices.Clone(f.endpoints) {
		if e.called(name) {
			e.teardown(errKilled)
		}
	}
	f.advance(f.now())
}

// called says whether faults of that name are the endpoint's.
func (e *Endpoint) called(name string) bool {
	return name != "" && (e.cfg.Name == name || e.host == name)
}

// Partition cuts the network between two sets of endpoints, each named by
// Config.Name or Config.Advertise. Partitions add up until Heal.
func (f *Fabric) Partition(a, b []string) {
	c := cut{a: map[string]bool{}, b: map[string]bool{}}
	for _, n := range a {
		c.a[n] = true
	}
	for _, n := range b {
		c.b[n] = true
	}
	f.mu.Lock()
	f.cuts = append(f.cuts, c)
	f.mu.Unlock()
}

// Slow makes set-up requests from one set of endpoints to another, named as for
// Partition, take longer by extra. Several add up.
func (f *Fabric) Slow(from, to []string, extra time.Duration) {
	d := detour{cut: cut{a: map[string]bool{}, b: map[string]bool{}}, extra: extra}
	for _, n := range from {
		d.a[n] = true
	}
	for _, n := range to {
		d.b[n] = true
	}
	f.mu.Lock()
	f.detours = append(f.detours, d)
	f.mu.Unlock()
}

// extra is how much longer a set-up request takes, ns.
func (f *Fabric) extra(from *Endpoint, to *site) int64 {
	var sum time.Duration
	for _, d := range f.detours {
		if d.has(d.a, from, "") && d.has(d.b, to.ep, to.host) {
			sum += d.extra
		}
	}
	return int64(sum)
}

// Heal ends all partitions. What was held back arrives with its next retry.
func (f *Fabric) Heal() {
	f.mu.Lock()
	f.cuts = nil
	f.mu.Unlock()
}

// severed says that a partition lies between from and a host, or the endpoint there.
func (f *Fabric) severed(from *Endpoint, host string, to *Endpoint) bool {
	for _, c := range f.cuts {
		if c.has(c.a, from, "") && c.has(c.b, to, host) || c.has(c.b, from, "") && c.has(c.a, to, host) {
			return true
		}
	}
	return false
}

func (cut) has(set map[string]bool, e *Endpoint, host string) bool {
	return set[host] && host != "" || e != nil && (set[e.cfg.Name] || set[e.host])
}

// site finds or makes the entry of an address; the caller holds mu.
func (f *Fabric) site(to transport.Address) (*site, bool) {
	if s := f.sites[string(to)]; s != nil { // this conversion does not allocate
		return s, true
	}
	host, ok := parseAddress(to)
	if !ok {
		return nil, false
	}
	s := &site{addr: string(to), host: host}
	f.sites[s.addr] = s
	return s, true
}
