package rendezvous

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"log"
	"math"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/vmihailenco/msgpack/v5"

	"rankstorm/internal/wellformed"
	"rankstorm/rank"
)

const (
	rejoinDebounce = 20 * time.Millisecond // records that come within it travel together
	gossipTimeout  = 3 * time.Second       // of one stream
	maxPacket      = 64 << 10
	maxEntries     = 1 << 20 // records that are kept
)

// entry is a record and the gossip member that speaks for its process.
type entry struct {
	Via    [16]byte    `msgpack:"via"` // nonce of the member
	Seq    uint32      `msgpack:"seq"` // the higher one of the same record is newer
	Record rank.Record `msgpack:"record"`
}

// gossip is this process's membership in the job's gossip. Records travel in
// memberlist's push/pull state. memberlist exchanges that when a member joins
// and then only every 30 s; so a member joins the controller again whenever it
// has new records of its own.
type gossip struct {
	self [16]byte
	list *memberlist.Memberlist
	tr   *gossipTransport
	log  *gossipLog

	mu      sync.Mutex
	entries map[[16]byte]entry
	seeds   []netip.AddrPort
	heard   func(nonces [][16]byte) // called without locks held
	lost    func(procs [][16]byte)  // called without locks held; a member is thought dead

	changed chan struct{}
	stop    context.CancelFunc
	done    chan struct{}
}

// startGossip makes this process a member, with its own record.
func startGossip(ctl *control, job [32]byte, self *rank.Record) (*gossip, error) {
	g := &gossip{
		self: self.Nonce, log: &gossipLog{},
		// Its own word about itself is final.
		entries: map[[16]byte]entry{self.Nonce: {Via: self.Nonce, Seq: math.MaxUint32, Record: *self}},
		changed: make(chan struct{}, 1), done: make(chan struct{}),
	}
	g.tr = newGossipTransport(ctl, self.Control[0])
	cfg := memberlist.DefaultLANConfig()
	cfg.Name = hex.EncodeToString(self.Nonce[:])
	cfg.Label = hashText(job)
	cfg.Transport = g.tr
	cfg.BindPort = int(self.Control[0].Port()) // never bound: it only completes addresses
	cfg.AdvertisePort = cfg.BindPort
	cfg.Delegate, cfg.Events = gossipState{g}, gossipEvents{g}
	cfg.Logger = log.New(g.log, "", 0)
	cfg.TCPTimeout = gossipTimeout
	// Records are few and short-lived, links are fast: compression only costs time.
	cfg.EnableCompression = false
	// A storm starves failure detectors: be slower to suspect than the default, the control links are quicker anyway.
	cfg.SuspicionMult = 6
	cfg.DNSConfigPath = "" // members are named by address
	if ctl.keys != nil {
		// What cannot be decrypted with the key is dropped, packets and streams alike.
		ring, err := memberlist.NewKeyring(nil, ctl.keys.gossip)
		if err != nil {
			g.tr.Shutdown()
			return nil, rank.Errorf(rank.KindInternal, "gossip: %w", err)
		}
		cfg.Keyring, cfg.GossipVerifyIncoming, cfg.GossipVerifyOutgoing = ring, true, true
	}
	list, err := memberlist.Create(cfg)
	if err != nil {
		g.tr.Shutdown()
		return nil, rank.Errorf(rank.KindInternal, "gossip: %w", err)
	}
	g.list = list
	ctx, stop := context.WithCancel(context.Background())
	g.stop = stop
	go g.joining(ctx)
	return g, nil
}

// setSeeds says where the controller gossips; none: this is the controller.
func (g *gossip) setSeeds(seeds []netip.AddrPort) {
	g.mu.Lock()
	g.seeds = seeds
	g.mu.Unlock()
	g.nudge()
}

// speakFor adds the record of another process of this host.
func (g *gossip) speakFor(e entry) {
	e.Via = g.self
	if g.merge([]entry{e}) {
		g.nudge()
	}
}

func (g *gossip) nudge() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// merge takes records; it says whether there was a new one.
func (g *gossip) merge(entries []entry) bool {
	var fresh [][16]byte
	g.mu.Lock()
	changed := false
	for _, e := range entries {
		old, known := g.entries[e.Record.Nonce]
		if known && (e.Seq <= old.Seq || e.Record.Nonce == g.self) || !known && len(g.entries) >= maxEntries {
			continue
		}
		g.entries[e.Record.Nonce] = e
		changed = true
		if !known {
			fresh = append(fresh, e.Record.Nonce)
		}
	}
	heard := g.heard
	g.mu.Unlock()
	if heard != nil && len(fresh) > 0 {
		heard(fresh)
	}
	return changed
}

// listen sets who hears of records, and tells what is known already.
func (g *gossip) listen(heard func([][16]byte)) {
	g.mu.Lock()
	g.heard = heard
	known := make([][16]byte, 0, len(g.entries))
	for nonce := range g.entries {
		known = append(known, nonce)
	}
	g.mu.Unlock()
	heard(known)
}

// onLost sets who hears that members are thought dead.
func (g *gossip) onLost(lost func([][16]byte)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost = lost
}

// joining joins the controller, and again after every change.
func (g *gossip) joining(ctx context.Context) {
	defer close(g.done)
	joined := false
	retry := newBackoff(5*time.Millisecond, 500*time.Millisecond)
	for {
		select {
		case <-g.changed:
		case <-ctx.Done():
			return
		}
		if joined { // the first time nobody may have to wait
			if pause(ctx, rejoinDebounce) != nil {
				return
			}
		}
		for {
			// What came until now goes with this exchange.
			select {
			case <-g.changed:
			default:
			}
			ok := g.joinOnce()
			joined = joined || ok
			if ok {
				retry = newBackoff(5*time.Millisecond, 500*time.Millisecond)
				break
			}
			if retry.wait(ctx) != nil {
				return
			}
		}
	}
}

// joinOnce exchanges states with the controller, at the first of its addresses
// that answers.
func (g *gossip) joinOnce() bool {
	g.mu.Lock()
	seeds := g.seeds
	g.mu.Unlock()
	for _, s := range seeds {
		// memberlist would look up an address with a zone as a name.
		if n, err := g.list.Join([]string{netip.AddrPortFrom(s.Addr().WithZone(""), s.Port()).String()}); n > 0 && err == nil {
			return true
		}
	}
	return len(seeds) == 0
}

// stats adds what gossip knows: members are those that speak for some process.
// What s says already stays if it is more, news takes its time to go round.
func (g *gossip) stats(s *Stats) {
	speaks := map[[16]byte]int{}
	g.mu.Lock()
	for _, e := range g.entries {
		speaks[e.Via]++
	}
	g.mu.Unlock()
	agents := 0
	for _, n := range speaks {
		if n > 1 {
			agents++
		}
	}
	s.Members, s.Agents = max(s.Members, len(speaks)), max(s.Agents, agents)
	s.Suspicions = int(g.log.suspicions.Load())
	s.Refutations = int(g.log.refutations.Load())
}

// close leaves the gossip without a word: the control links have said goodbye.
func (g *gossip) close() {
	g.stop()
	g.tr.Shutdown() // also ends a join under way
	<-g.done
	g.list.Shutdown()
}

// gossipState carries the records in memberlist's state exchange.
type gossipState struct{ g *gossip }

func (gossipState) NodeMeta(int) []byte             { return nil }
func (gossipState) NotifyMsg([]byte)                {}
func (gossipState) GetBroadcasts(int, int) [][]byte { return nil }

// fullStateUpTo is the number of records up to which a member passes on all that
// it knows. In a larger job it tells only those it speaks for: everybody joins
// the controller itself, and the whole state in every exchange would cost the
// controller members × records.
const fullStateUpTo = 64

func (s gossipState) LocalState(bool) []byte {
	s.g.mu.Lock()
	entries := make([]entry, 0, min(len(s.g.entries), fullStateUpTo))
	for _, e := range s.g.entries {
		if len(s.g.entries) <= fullStateUpTo || e.Via == s.g.self {
			entries = append(entries, e)
		}
	}
	s.g.mu.Unlock()
	body, err := msgpack.Marshal(entries)
	if err != nil {
		return nil // plain structs always encode
	}
	return body
}

func (s gossipState) MergeRemoteState(body []byte, _ bool) {
	if entries, err := decodeEntries(body); err == nil {
		s.g.merge(entries)
	}
}

// decodeEntries decodes what a member sent; one bad record spoils them all.
func decodeEntries(body []byte) ([]entry, error) {
	if len(body) == 0 {
		return nil, nil
	}
	if err := wellformed.Msgpack(body, wellformed.MaxDepth); err != nil {
		return nil, err
	}
	// One by one: a short body must not make room for many records.
	d := msgpack.NewDecoder(bytes.NewReader(body))
	n, err := d.DecodeArrayLen()
	if err != nil {
		return nil, err
	}
	var entries []entry
	for range n {
		var e entry
		if err := d.Decode(&e); err != nil {
			return nil, err
		}
		if err := checkRecord(&e.Record); err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// gossipEvents tells of members that are thought dead. memberlist calls it with
// its lock held, so that it must not call back.
type gossipEvents struct{ g *gossip }

func (gossipEvents) NotifyJoin(*memberlist.Node)   {}
func (gossipEvents) NotifyUpdate(*memberlist.Node) {}

func (e gossipEvents) NotifyLeave(n *memberlist.Node) {
	var member [16]byte
	if k, err := hex.Decode(member[:], []byte(n.Name)); err != nil || k != len(member) {
		return
	}
	procs := [][16]byte{member} // the member itself, also if its record has not come here yet
	e.g.mu.Lock()
	for nonce, en := range e.g.entries {
		if en.Via == member && nonce != member {
			procs = append(procs, nonce)
		}
	}
	lost := e.g.lost
	e.g.mu.Unlock()
	if lost != nil {
		lost(procs)
	}
}

// gossipLog keeps memberlist's log off the terminal and counts what only the
// log tells: suspicions, and refutations by this process.
type gossipLog struct {
	suspicions, refutations atomic.Int64
}

func (l *gossipLog) Write(line []byte) (int, error) {
	switch {
	case bytes.Contains(line, []byte("memberlist: Suspect ")):
		l.suspicions.Add(1)
	case bytes.Contains(line, []byte("memberlist: Refuting ")):
		l.refutations.Add(1)
	}
	return len(line), nil
}

// gossipTransport carries memberlist over the control port: streams that begin
// with kindGossip, and all packets.
type gossipTransport struct {
	ctl     *control
	own     netip.AddrPort
	packets chan *memberlist.Packet
	streams chan net.Conn
	done    chan struct{}
	once    sync.Once
	wg      sync.WaitGroup

	mu   sync.Mutex
	open map[*gossipStream]struct{} // nil after Shutdown
}

func newGossipTransport(ctl *control, own netip.AddrPort) *gossipTransport {
	t := &gossipTransport{
		ctl: ctl, own: own,
		packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
		done: make(chan struct{}), open: map[*gossipStream]struct{}{},
	}
	t.wg.Go(t.read)
	ctl.handle(kindGossip, func(c net.Conn) {
		s := t.track(c)
		if s == nil {
			return
		}
		select {
		case t.streams <- s:
		case <-t.done:
			s.Close()
		}
	})
	return t
}

// gossipStream is a stream that Shutdown can close.
type gossipStream struct {
	net.Conn
	t *gossipTransport
}

func (s *gossipStream) Close() error {
	s.t.mu.Lock()
	delete(s.t.open, s)
	s.t.mu.Unlock()
	return s.Conn.Close()
}

func (t *gossipTransport) track(c net.Conn) *gossipStream {
	s := &gossipStream{c, t}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		c.Close()
		return nil
	}
	t.open[s] = struct{}{}
	return s
}

func (t *gossipTransport) read() {
	pc := t.ctl.packet()
	buf := make([]byte, maxPacket)
	for {
		n, from, err := pc.ReadFrom(buf)
		select {
		case <-t.done:
			return
		default:
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n == 0 {
			continue // ICMP errors of earlier packets come back here
		}
		p := &memberlist.Packet{Buf: bytes.Clone(buf[:n]), From: from, Timestamp: time.Now()}
		select {
		case t.packets <- p:
		case <-t.done:
			return
		}
	}
}

func (t *gossipTransport) FinalAdvertiseAddr(string, int) (net.IP, int, error) {
	return net.IP(t.own.Addr().AsSlice()), int(t.own.Port()), nil
}

func (t *gossipTransport) WriteTo(b []byte, addr string) (time.Time, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return time.Time{}, err
	}
	_, err = t.ctl.packet().WriteTo(b, net.UDPAddrFromAddrPort(to))
	return time.Now(), err
}

func (t *gossipTransport) WriteToAddress(b []byte, addr memberlist.Address) (time.Time, error) {
	return t.WriteTo(b, addr.Addr)
}

func (t *gossipTransport) PacketCh() <-chan *memberlist.Packet { return t.packets }
func (t *gossipTransport) StreamCh() <-chan net.Conn           { return t.streams }

func (t *gossipTransport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	to, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	go func() {
		select {
		case <-t.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	c, err := t.ctl.dial(ctx, kindGossip, to)
	if err != nil {
		return nil, err
	}
	if s := t.track(c); s != nil {
		return s, nil
	}
	return nil, net.ErrClosed
}

func (t *gossipTransport) DialAddressTimeout(addr memberlist.Address, timeout time.Duration) (net.Conn, error) {
	return t.DialTimeout(addr.Addr, timeout)
}

// Shutdown ends all streams and the reading of packets; the sockets stay, they
// belong to the control port.
func (t *gossipTransport) Shutdown() error {
	t.once.Do(func() {
		close(t.done)
		t.ctl.packet().SetReadDeadline(time.Now())
		t.mu.Lock()
		open := t.open
		t.open = nil
		t.mu.Unlock()
		for s := range open {
			s.Conn.Close()
		}
		t.wg.Wait()
	})
	return nil
}
