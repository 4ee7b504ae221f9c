package rendezvous

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rankstorm/rank"
)

const (
	defaultLiveness  = 10 * time.Second
	defaultTreeArity = 16
	pingAfter        = time.Second     // without a sign of life
	closeWait        = 2 * time.Second // for the peers' answer to the goodbye
	eventBuffer      = 1024
	maxNotes         = 1 << 16
)

// Group is a sealed job seen from one of its processes: the rank table, the
// links to parent and children in the control tree, and the clock. The Send
// methods may be called from any goroutine, Events is for one reader.
type Group struct {
	c        *control
	clock    Clock
	table    *rank.Table
	self     rank.Proc
	tree     *tree
	liveness time.Duration

	parent   *link   // nil at the root; changes under mu after the seal
	children []*link // in the order of tree.children; complete once sealed
	events   chan Event
	clk      clockState

	bmu  sync.Mutex // of bbuf
	bbuf []byte

	mu       sync.Mutex
	adopted  []*link             // children that have lost their way to the root
	askers   map[rank.Proc]offer // who asks to be adopted
	ticked   int64               // own clock: last sign of life of the own process
	stood    time.Duration       // see Stood
	stoodEnd int64
	notes    []sealNote // what the links told before the seal was over
	sealOver bool
	noted    chan struct{}

	sealNS   int64
	upEnded  bool // sealing: the parent's link was seen to end
	treeTime time.Duration
	// extra fills in what gathering and gossip know; may be nil. onClose runs
	// at the end of Close, in order. Both are set before the group is handed out.
	extra   func(*Stats)
	onClose []func()

	closing   chan struct{} // closed first: events are not wanted any more
	quit      chan struct{} // ends the liveness goroutine
	wg        sync.WaitGroup
	closeOnce sync.Once
	closed    atomic.Bool
	abandoned atomic.Bool // Close says no goodbye
}

func newGroup(c *control, t *rank.Table, self rank.Proc) *Group {
	g := &Group{
		c: c, clock: c.clock, table: t, self: self,
		tree:     tableTree(t, c.cfg.TreeArity),
		liveness: c.cfg.LivenessTimeout,
		events:   make(chan Event, eventBuffer),
		noted:    make(chan struct{}, 1),
		closing:  make(chan struct{}),
		quit:     make(chan struct{}),
		askers:   map[rank.Proc]offer{},
	}
	if g.liveness <= 0 {
		g.liveness = defaultLiveness
	}
	g.children = make([]*link, len(g.tree.children(self)))
	g.clk.init(g)
	c.group.Store(g)
	return g
}

// tableTree shapes the tree of a table. Processes that share a kernel share a
// host here, whatever host names they were given.
func tableTree(t *rank.Table, arity int) *tree {
	if arity <= 0 {
		arity = defaultTreeArity
	}
	type key struct {
		id   [16]byte
		name string
	}
	numbers := map[key]int32{}
	host := make([]int32, len(t.Procs))
	for p := range t.Procs {
		k := key{id: t.Procs[p].HostID}
		if k.id == [16]byte{} {
			k.name = t.Procs[p].Host
		}
		n, ok := numbers[k]
		if !ok {
			n = int32(len(numbers))
			numbers[k] = n
		}
		host[p] = n
	}
	return newTree(host, arity)
}

// Table of the job, the same at everybody.
func (g *Group) Table() *rank.Table { return g.table }

// Self is this process's number in the table.
func (g *Group) Self() rank.Proc { return g.self }

// Parent in the control tree, NoProc at process 0.
func (g *Group) Parent() rank.Proc { return g.tree.parent(g.self) }

// Children in the control tree, ascending, lost ones included.
func (g *Group) Children() []rank.Proc { return slices.Clone(g.tree.children(g.self)) }

// Subtree is child and everybody below it, ascending. Any process may be named.
func (g *Group) Subtree(child rank.Proc) []rank.Proc {
	if child < 0 || int(child) >= len(g.table.Procs) {
		return nil
	}
	return g.tree.subtree(child)
}

// Ports on which this process takes streams of the control plane. What comes
// in there has a descriptor and a goroutine each, and may come from anybody.
func (g *Group) Ports() []uint16 { return g.c.mux.ports() }

// DataKey is the key of the tokens in the hellos of data connections, 32 bytes
// that every process of the job has and nobody else; nil in an open job.
func (g *Group) DataKey() []byte {
	if g.c.keys == nil {
		return nil
	}
	return slices.Clone(g.c.keys.data)
}

// Depth is the number of links between process 0 and this process.
func (g *Group) Depth() int { return g.tree.depth(g.self) }

// SendUp hands payload to the parent. It does not wait: what the socket does
// not take is queued. payload, at most 256 MiB, may be reused on return. An
// error means that the parent is lost or has closed (a *rank.Error of KindLost
// names it), or that payload is too long.
func (g *Group) SendUp(payload []byte) error {
	g.mu.Lock()
	up := g.parent
	g.mu.Unlock()
	if up == nil {
		return rank.Errorf(rank.KindInternal, "the root has no parent to send to")
	}
	return up.send(frameData, payload)
}

// SendDown hands payload to one child; see SendUp.
func (g *Group) SendDown(child rank.Proc, payload []byte) error {
	for _, l := range g.taken() {
		if l.proc == child && !l.dead.Load() {
			return l.send(frameData, payload)
		}
	}
	i, ok := slices.BinarySearch(g.tree.children(g.self), child)
	if !ok {
		return rank.Errorf(rank.KindInternal, "process %d is no child of process %d", child, g.self)
	}
	return g.children[i].send(frameData, payload)
}

// Broadcast hands payload to every child that is still there; see SendUp. A
// lost child is no error here, the ChildLost event tells of it.
func (g *Group) Broadcast(payload []byte) error {
	return g.broadcast(frameData, payload)
}

func (g *Group) broadcast(kind byte, body []byte) error {
	adopted := g.taken()
	if len(g.children)+len(adopted) == 0 {
		return nil
	}
	g.bmu.Lock()
	defer g.bmu.Unlock()
	b, err := appendFrames(g.bbuf[:0], kind, body)
	if err != nil {
		return err
	}
	if cap(b) <= keepWriteBuf {
		g.bbuf = b
	}
	for _, l := range g.children {
		if l != nil {
			_ = l.sendRaw(b) // a loss is told as an event
		}
	}
	for _, l := range adopted {
		_ = l.sendRaw(b)
	}
	return nil
}

// taken are the adopted children so far.
func (g *Group) taken() []*link {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clip(g.adopted)
}

// Events of the group: one reader, which must keep up, since a full buffer
// holds up the links. The channel is never closed; after Close nothing comes.
func (g *Group) Events() <-chan Event { return g.events }

// TreeTime is half the time of one message's trip down the tree and back,
// measured while sealing; 0 elsewhere than at process 0.
func (g *Group) TreeTime() time.Duration { return g.treeTime }

// Stats of gathering and gossip so far.
func (g *Group) Stats() Stats {
	s := Stats{SealNS: g.sealNS, Root: g.self == 0}
	if g.extra != nil {
		g.extra(&s)
	}
	return s
}

// push hands an event to the reader; it waits if the buffer is full.
func (g *Group) push(e Event) {
	if g.closed.Load() {
		return // after the own goodbye everybody hangs up
	}
	select {
	case g.events <- e:
	case <-g.closing:
	}
}

func (g *Group) deliver(l *link, payload []byte, at int64) {
	kind := FromChild
	if l.up {
		kind = FromParent
	}
	g.push(Event{Kind: kind, Proc: l.proc, Payload: payload, At: at})
}

// suspect passes on what gossip thinks. It is only a hint: it never waits, and
// is dropped if the reader is far behind.
func (g *Group) suspect(p rank.Proc) { g.hint(Event{Kind: Suspected, Proc: p}) }

// refused passes on that the controller refused a late process.
func (g *Group) refused(err error) { g.hint(Event{Kind: Refused, Proc: rank.NoProc, Err: err}) }

func (g *Group) hint(e Event) {
	if g.closed.Load() {
		return
	}
	e.At = g.clock.Now()
	select {
	case g.events <- e:
	default:
	}
}

// lostError is the error of a link to p that ended.
func (g *Group) lostError(p rank.Proc, format string, args ...any) *rank.Error {
	e := rank.Errorf(rank.KindLost, format, args...)
	e.Proc, e.Host = p, g.table.Procs[p].Host
	return e
}

// start begins to read a link.
func (g *Group) start(l *link) {
	g.wg.Go(l.run)
}

// ended is called once per link, by its reader.
func (g *Group) ended(l *link, err error) {
	to := ""
	if own := g.table.Procs[g.self].Host; own != g.table.Procs[l.proc].Host { // it may be the network between them: name both ends
		to = fmt.Sprintf(" to process %d (%s)", g.self, own)
	}
	lost := g.lostError(l.proc, "pid %d: control link%s lost: %w", g.table.Procs[l.proc].PID, to, err)
	g.mu.Lock()
	if !g.sealOver {
		g.notes = append(g.notes, sealNote{l: l, kind: noteEnded, err: lost})
		g.mu.Unlock()
		g.nudge()
		return
	}
	g.mu.Unlock()
	if errors.Is(err, errBye) {
		return
	}
	kind := ChildLost
	if l.up {
		kind = ParentLost
	}
	g.push(Event{Kind: kind, Proc: l.proc, At: g.clock.Now(), Err: lost})
}

// watch sends pings over quiet links and cuts those that stay silent. Silence
// is counted in ticks, not read from a clock: a process that was stopped has
// missed ticks and does not blame its peers for that time.
func (g *Group) watch() {
	every := min(250*time.Millisecond, max(g.liveness/8, time.Millisecond))
	ask := min(pingAfter, g.liveness/4)
	g.tick(g.clock.Now())
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-g.quit:
			return
		case <-ticker.C:
		}
		g.tick(g.clock.Now())
		for _, l := range g.links() {
			if l.dead.Load() {
				continue
			}
			if n := l.frames.Load(); n != l.seen || l.untilAsk == 0 { // 0: new
				l.seen, l.idle, l.untilAsk = n, 0, ask
				continue
			}
			l.idle += every
			l.untilAsk -= every
			switch {
			case l.idle >= g.liveness:
				l.cut(fmt.Errorf("silent for %v", l.idle))
			case l.untilAsk <= 0:
				l.untilAsk = ask
				_ = l.send(framePing, nil) // a loss is told as an event
			}
		}
	}
}

// tick notes that this process runs, and how long it did not.
func (g *Group) tick(now int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if gap := now - g.ticked; g.ticked != 0 && gap > int64(g.liveness/2) {
		g.stood, g.stoodEnd = time.Duration(gap), now
	}
	g.ticked = now
}

// Stood is the last time that nobody ran this process (SIGSTOP, a machine that
// slept) for more than half of the liveness timeout, and when that ended by the
// own clock; 0 if never. After a gap of more than the whole liveness timeout the
// others have taken this process for lost.
func (g *Group) Stood() (gap time.Duration, ended int64) {
	now := g.clock.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	if gap := now - g.ticked; g.ticked != 0 && gap > int64(g.liveness/2) { // it has not ticked yet
		return time.Duration(gap), now
	}
	return g.stood, g.stoodEnd
}

// links that exist so far.
func (g *Group) links() []*link {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]*link, 0, len(g.children)+1)
	if g.parent != nil {
		all = append(all, g.parent)
	}
	for _, l := range g.children {
		if l != nil {
			all = append(all, l)
		}
	}
	return append(all, g.adopted...)
}

// Close leaves the job: it says goodbye on every link, so that nobody takes
// this for a loss, gives what is queued 2 s to be read, closes the port and
// waits for all goroutines of the group. It is idempotent and returns nil.
func (g *Group) Close() error {
	g.closeOnce.Do(func() {
		g.closed.Store(true)
		close(g.closing)
		g.leave()
		g.c.close()
		for _, f := range g.onClose {
			f()
		}
	})
	return nil
}

// leave ends the links and the goroutines that serve them.
func (g *Group) leave() {
	g.mu.Lock()
	for p, o := range g.askers {
		o.out.Close()
		delete(g.askers, p)
	}
	g.mu.Unlock()
	links := g.links()
	if g.abandoned.Load() {
		for _, l := range links {
			l.cut(errBye)
		}
	}
	for _, l := range links {
		_ = l.send(frameBye, nil) // whoever is gone needs no goodbye
	}
	timer := time.NewTimer(closeWait)
	defer timer.Stop()
	for _, l := range links {
		select {
		case <-l.done:
		case <-timer.C:
			timer.Reset(0)
		}
		l.cut(errBye)
	}
	close(g.quit)
	g.wg.Wait()
}
