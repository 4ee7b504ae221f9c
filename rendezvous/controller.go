package rendezvous

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"rankstorm/rank"
)

const (
	firstNotice  = 2 * time.Second // of who is missing
	noticeEvery  = 5 * time.Second // after that; also the sign of life for those who wait
	lookEvery    = time.Second     // for a new cause, which is told at once
	knockTimeout = 5 * time.Second // for the knock on a new link
	maxKnocking  = 4096            // links that have not knocked yet
	refuseFlush  = time.Second
	maxRefusals  = 32 // told to the user, each once: most of what they say is not proved by anything
)

// controller gathers the processes, makes the rank table, hands it to process
// 0, and refuses who comes later. It exists at the one process that has the
// controller port.
type controller struct {
	j       *joiner
	name    string           // address and process, for the others' messages
	seeds   []netip.AddrPort // where it gossips
	begun   time.Time
	stop    context.CancelFunc // of the notices
	wg      sync.WaitGroup
	refused func(error) // after the seal; guarded by mu

	mu      sync.Mutex
	g       *gathering
	links   map[[16]byte]*knockLink
	conns   map[net.Conn]struct{}
	knocks  int                 // links that have not knocked yet
	turned  map[string]struct{} // refusals that the user was told
	table   *rank.Table
	inPlace bool // somebody said that everybody has the table
	over    bool // failed or closed: no link changes anything any more
}

// knockLink is the link of a process that was let in.
type knockLink struct {
	out    *outbox
	frames atomic.Uint32 // read so far: the signs of life

	// Guarded by the controller's mu.
	seen  uint32
	idle  time.Duration // without a sign of life
	ended bool          // cut because it was silent
}

func (l *knockLink) send(kind byte, v any) { _ = writeMessage(l.out, kind, v) } // a broken link is seen by its reader

// startController makes this process the controller; ln is the controller port.
func startController(j *joiner, ln net.Listener) (*controller, error) {
	if err := j.beMember(); err != nil {
		ln.Close()
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	c := &controller{
		j: j, name: j.addr.String() + ", " + who(&j.cfg.Record), seeds: j.cfg.Record.Control, begun: time.Now(), stop: stop,
		g:     newGathering(j.knock(), runID(time.Now())),
		links: map[[16]byte]*knockLink{}, conns: map[net.Conn]struct{}{}, turned: map[string]struct{}{},
	}
	if j.ctl.keys == nil {
		j.say(fmt.Sprintf("this job is open: whoever reaches %s can take part; give every process the same --secret-file to protect it", j.addr))
	}
	own := j.knock()
	if m, ok := c.g.admit(&own, 0); !ok {
		stop()
		ln.Close()
		return nil, rank.Errorf(rank.KindUsage, "%s", m.rest)
	}
	j.gossip().setSeeds(nil)
	j.ctl.handle(kindKnock, c.take)
	j.gossip().listen(c.gossiped)
	c.wg.Go(func() { c.tick(ctx) })
	c.wg.Go(func() { c.watch(ctx) })
	j.ctl.serve(ln)
	return c, nil
}

// take starts the conversation with a process.
func (c *controller) take(conn net.Conn) {
	stream, plain, err := c.j.ctl.greet(conn, c.name, func(who string, m mismatch) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.g.noteRefusal(m, who)
		c.tell(m.notice(who))
	})
	if !c.j.ctl.mux.greeted(conn) || err != nil {
		conn.Close()
		return
	}
	conn = stream
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.knocks >= maxKnocking {
		conn.Close()
		return
	}
	c.knocks++
	c.conns[conn] = struct{}{}
	c.wg.Go(func() { c.converse(conn, plain) })
}

// converse takes the knock of a process and stays with it if it is let in.
// plain: the knock comes in the clear.
func (c *controller) converse(conn net.Conn, plain bool) {
	out := newOutbox(conn)
	defer func() {
		out.Close()
		c.mu.Lock()
		delete(c.conns, conn)
		c.mu.Unlock()
	}()
	conn.SetReadDeadline(time.Now().Add(knockTimeout))
	r := bufio.NewReaderSize(conn, 4096)
	kind, body, err := readFrame(r, maxKnock)
	c.mu.Lock()
	c.knocks--
	c.mu.Unlock()
	if err != nil || kind != frameKnock {
		return // junk
	}
	k, err := decodeKnock(body)
	if err != nil && (k.Proto == 0 || k.Proto == knockVersion) {
		return // junk; another version's record need not make sense here
	}
	link := &knockLink{out: out}
	if refusal := c.admit(&k, link, plain); refusal != "" {
		link.send(frameTurnAway, turnAway{Text: refusal})
		_ = out.flush(refuseFlush) // the refusal is said; a peer that does not read it has had its chance
		return
	}
	conn.SetReadDeadline(time.Time{})
	for {
		kind, body, err := readFrame(r, maxKnock)
		link.frames.Add(1)
		switch {
		case err != nil:
			c.left(&k.Record, link, nil)
			return
		case kind == frameTrouble:
			var t trouble
			if decode(body, &t) == nil {
				c.troubled(&k.Record, t.Text)
			}
		case kind == frameInPlace:
			c.sealed()
			return
		case kind == frameJobFailed:
			cause := &rank.Error{}
			if decode(body, cause) != nil {
				cause = nil
			}
			c.left(&k.Record, link, cause)
			return
		}
	}
}

// admit decides on a knock and answers a welcome. refusal is what to answer
// otherwise.
func (c *controller) admit(k *knock, link *knockLink, plain bool) (refusal string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var m mismatch
	ok := false
	if plain && c.j.ctl.keys != nil {
		m = inTheClear(k, &c.g.own)
		c.g.noteRefusal(m, who(&k.Record))
	} else {
		m, ok = c.g.admit(k, time.Since(c.begun))
	}
	if !ok {
		c.tell(m.notice(who(&k.Record)))
		return m.told(c.name)
	}
	if old := c.links[k.Record.Nonce]; old != nil {
		defer old.out.Conn.Close() // it came again over a new link
	}
	c.links[k.Record.Nonce] = link
	link.send(frameWelcome, welcome{Seeds: c.seeds, Controller: c.name})
	c.trySeal()
	return ""
}

// tell passes a refusal on to the user. c.mu is held.
func (c *controller) tell(notice string) {
	if _, again := c.turned[notice]; again || len(c.turned) > maxRefusals {
		return
	}
	if len(c.turned) == maxRefusals {
		notice = "more processes are refused than can be told"
	}
	c.turned[notice] = struct{}{}
	if c.refused != nil {
		c.refused(rank.Errorf(rank.KindRefused, "%s", notice))
	} else {
		c.j.say(notice)
	}
}

// gossiped hears of records that gossip brought.
func (c *controller) gossiped(nonces [][16]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range nonces {
		c.g.gossiped(n)
	}
	c.trySeal()
}

// trySeal makes the table as soon as everybody is known. c.mu is held.
func (c *controller) trySeal() {
	if c.over || c.g.sealed || !c.g.complete() {
		return
	}
	table, err := rank.Build(c.g.seal(), c.g.own.K, c.g.runID)
	if err != nil {
		c.failLocked(rank.AsError(err, rank.KindInternal))
		return
	}
	if c.j.cfg.Lead {
		table = table.Led(c.j.cfg.Record.Nonce)
	}
	c.table = table
	var now Stats
	c.j.gossip().stats(&now)
	for _, l := range c.links {
		l.send(frameWait, waiting{Sealing: true, Members: now.Members, Agents: now.Agents})
	}
	if table.Procs[0].Nonce == c.j.cfg.Record.Nonce {
		c.j.takeTable(table)
		return
	}
	c.j.sealing.Store(true)
	body, err := msgpack.Marshal(table)
	if err != nil {
		c.failLocked(rank.Errorf(rank.KindInternal, "cannot encode the rank table: %w", err))
		return
	}
	_ = writeFrame(c.links[table.Procs[0].Nonce].out, frameTakeTable, body) // a broken link is seen by its reader
}

// left hears that a link ended. cause is what the process said about it.
func (c *controller) left(rec *rank.Record, link *knockLink, cause *rank.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over || c.links[rec.Nonce] != link {
		return
	}
	delete(c.links, rec.Nonce)
	silent := time.Duration(0)
	if link.ended {
		silent = link.idle
	}
	if !c.g.sealed {
		c.g.leave(rec.Nonce, silent)
		return
	}
	if c.inPlace { // the control tree judges now
		return
	}
	if cause == nil {
		cause = rank.Errorf(rank.KindLost, "pid %d ended while the rank table was handed out", rec.PID)
		if silent > 0 {
			cause = rank.Errorf(rank.KindLost, "pid %d was silent for %v while the rank table was handed out: is it stopped, or cut off?", rec.PID, silent)
		}
		cause.Host = rec.Host
		for p := range c.table.Procs {
			if c.table.Procs[p].Nonce == rec.Nonce {
				cause.Proc = rank.Proc(p)
			}
		}
	}
	c.failLocked(cause)
}

// sealed hears that everybody has the table.
func (c *controller) sealed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inPlace = true
}

// settled is called when this process has its group.
func (c *controller) settled(refused func(error)) {
	c.stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inPlace = true
	c.refused = refused
}

// fail tells everybody that the job did not form.
func (c *controller) fail(err *rank.Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(err)
}

func (c *controller) failLocked(err *rank.Error) {
	if c.over || c.inPlace {
		return
	}
	c.over = true
	c.g.sealed = true
	for _, l := range c.links {
		l.send(frameJobFailed, err)
	}
	c.j.end(outcome{err: err})
}

// watch asks all who wait whether they are there, and cuts the links of those
// that are silent for the liveness timeout. Silence is counted in ticks: a
// controller that was stopped does not blame the others.
func (c *controller) watch(ctx context.Context) {
	every := max(c.j.cfg.LivenessTimeout/4, time.Millisecond)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		c.mu.Lock()
		for _, l := range c.links {
			if n := l.frames.Load(); n != l.seen {
				l.seen, l.idle = n, 0
			} else if l.idle += every; l.idle >= c.j.cfg.LivenessTimeout {
				l.ended = true
				l.out.Conn.Close() // its reader hears of it
				continue
			}
			_ = writeFrame(l.out, frameThere, nil) // a broken link is seen by its reader
		}
		c.mu.Unlock()
	}
}

// tick tells how far gathering is, here and to all who wait.
func (c *controller) tick(ctx context.Context) {
	t := time.NewTimer(firstNotice)
	defer t.Stop()
	var causes []string
	told := time.Time{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		t.Reset(lookEvery)
		c.mu.Lock()
		w := waiting{Sealing: c.g.sealed}
		var lines []string
		if !c.g.sealed {
			lines = c.waitingLines(false)
		}
		news := slices.ContainsFunc(lines[min(1, len(lines)):], func(l string) bool { return !slices.Contains(causes, l) })
		if news || time.Since(told) >= noticeEvery {
			told = time.Now()
			causes = append(causes[:0], lines[min(1, len(lines)):]...)
			for _, l := range lines {
				c.j.say(l)
			}
			w.Text = strings.Join(lines, "; ")
			for _, l := range c.links {
				l.send(frameWait, w)
			}
		}
		c.mu.Unlock()
	}
}

// waitingLines of this moment; over: the last one. c.mu is held.
func (c *controller) waitingLines(over bool) []string {
	return c.g.waiting(time.Since(c.begun), c.j.addr.String(), c.j.cfg.Launch, over)
}

// missing is the state of gathering, for the error at the join timeout; "" if
// nobody is missing.
func (c *controller) missing() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.g.sealed {
		return ""
	}
	return strings.Join(c.waitingLines(true), "; ")
}

// handedTo says who has the table to hand it to the others and is silent since;
// "" at other processes than the controller.
func (c *controller) handedTo() string {
	if c == nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.table == nil || c.inPlace {
		return ""
	}
	if len(c.g.trouble) > 0 {
		return ": " + strings.Join(c.g.trouble, "; ")
	}
	return fmt.Sprintf(": process 0 (%s), which hands it out, has not said that they have it; check that host and the network to it", c.table.Procs[0].Host)
}

// close ends all links; what was said last is given a moment to leave.
func (c *controller) close() {
	c.stop()
	c.mu.Lock()
	c.over = true
	links := make([]*knockLink, 0, len(c.links))
	for _, l := range c.links {
		links = append(links, l)
	}
	c.mu.Unlock()
	until := time.Now().Add(refuseFlush)
	for _, l := range links {
		_ = l.out.flush(max(0, time.Until(until)))
	}
	c.mu.Lock()
	for conn := range c.conns {
		conn.Close()
	}
	c.mu.Unlock()
	c.wg.Wait()
}
