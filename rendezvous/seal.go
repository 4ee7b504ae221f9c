package rendezvous

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"rankstorm/internal/wellformed"
	"rankstorm/rank"
)

// The seal, from process 0 down: a parent dials each child, says hello, sends
// the table and reads on. A child checks both, does the same with its own
// children, and acknowledges when all of them have. When process 0 has every
// acknowledgement it measures the tree with a few trips and sends "sealed".
// Whatever goes wrong travels up as frameSealFailed and from process 0 down to
// everybody: nobody starts alone.

const (
	refusedTimeout   = 4 * time.Second  // to reach a child whose host says that nobody listens
	childDialTimeout = 10 * time.Second // to reach a child at all: its host may be short of time
	oneDialTimeout   = 3 * time.Second  // per address, where there are several
	redialPause      = 100 * time.Millisecond
	failWait         = 2 * time.Second // for process 0's verdict after an own failure
	treeTrips        = 3
)

type hello struct {
	Proc   rank.Proc `msgpack:"p"` // who the other end is expected to be
	Nonce  [16]byte  `msgpack:"n"` // its nonce in the table
	Parent rank.Proc `msgpack:"u"` // who speaks
	Digest [32]byte  `msgpack:"d"` // of the table that follows
	Job    [32]byte  `msgpack:"j"` // of what all processes must have the same
}

type tableAck struct {
	Count  int      `msgpack:"n"` // processes of the subtree
	Digest [32]byte `msgpack:"d"`
}

// noteEnded stands for "the link ended" among the frame types.
const noteEnded = 0

// sealNote is what a link tells the seal.
type sealNote struct {
	l    *link
	kind byte
	body []byte
	err  *rank.Error
}

// note takes a frame of the seal from a reader; late ones are dropped.
func (g *Group) note(n sealNote) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.sealOver:
		return nil
	case len(g.notes) >= maxNotes:
		return errors.New("too many frames of the seal")
	}
	g.notes = append(g.notes, n)
	g.nudge()
	return nil
}

func (g *Group) nudge() {
	select {
	case g.noted <- struct{}{}:
	default:
	}
}

func (g *Group) takeNotes() []sealNote {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.notes
	g.notes = nil
	return n
}

// jobDigest covers what every process of a job must have the same.
func jobDigest(cfg *Config) [32]byte {
	h := sha256.New()
	put := func(s string) { fmt.Fprintf(h, "%d:%s,", len(s), s) }
	put("rankstorm job 1")
	put(cfg.JobKey)
	put(cfg.Record.BuildID)
	fmt.Fprintf(h, "%d,%d,", cfg.Procs, cfg.K)
	for _, kv := range cfg.Settings {
		put(kv.Key)
		put(kv.Value)
	}
	return [32]byte(h.Sum(nil))
}

// decode decodes what came over the wire.
func decode(body []byte, v any) error {
	if err := wellformed.Msgpack(body, wellformed.MaxDepth); err != nil {
		return err
	}
	return msgpack.Unmarshal(body, v)
}

// seal pushes the table to everybody. This must be process 0 of the table.
// It returns when every process has acknowledged; the error is a *rank.Error
// of KindRendezvous or KindLost that every process reached gets as well.
func (c *control) seal(ctx context.Context, t *rank.Table) (*Group, error) {
	if err := t.Verify(); err != nil {
		return nil, err
	}
	if t.Procs[0].Nonce != c.cfg.Record.Nonce {
		return nil, rank.Errorf(rank.KindInternal, "the rank table names another process as process 0")
	}
	encoded, err := msgpack.Marshal(t)
	if err != nil {
		return nil, rank.Errorf(rank.KindInternal, "cannot encode the rank table: %w", err)
	}
	g := newGroup(c, t, 0)
	return g.formed(ctx, encoded)
}

// await waits for a parent that brings the table of this process, passes it on
// to the processes below and returns when process 0 says that everybody has it.
func (c *control) await(ctx context.Context) (*Group, error) {
	for {
		var o offer
		select {
		case o = <-c.offers:
		case <-ctx.Done():
			return nil, rank.Errorf(rank.KindRendezvous, "no rank table came: %w", context.Cause(ctx))
		}
		if o.hello.Nonce != c.cfg.Record.Nonce {
			o.refuse("the process the table means is gone, another one has its port")
			continue
		}
		if o.hello.Job != jobDigest(c.cfg) {
			o.refuse("the job's settings or builds differ between the two processes")
			return nil, rank.Errorf(rank.KindRendezvous, "process %d belongs to a job with other settings or another build; start every process with the same command and binary", o.hello.Parent)
		}
		t, encoded, err := c.readTable(ctx, o)
		if err != nil {
			o.refuse("%v", err)
			return nil, rank.Errorf(rank.KindRendezvous, "the rank table from process %d is not usable: %w", o.hello.Parent, err)
		}
		g := newGroup(c, t, o.hello.Proc)
		g.parent = newLink(g, o.hello.Parent, true, o.out, o.conn, o.r)
		g.start(g.parent)
		return g.formed(ctx, encoded)
	}
}

// readTable reads and checks the table that follows a hello. A parent silent
// for the liveness timeout, or ctx, ends it.
func (c *control) readTable(ctx context.Context, o offer) (*rank.Table, []byte, error) {
	stop := context.AfterFunc(ctx, func() { o.conn.Close() })
	defer stop()
	silent := c.cfg.LivenessTimeout
	if silent <= 0 {
		silent = defaultLiveness
	}
	defer o.conn.SetReadDeadline(time.Time{})
	var parts assembler
	var encoded []byte
	for complete := false; !complete; {
		o.conn.SetReadDeadline(time.Now().Add(silent))
		kind, body, err := readFrame(o.r, maxFrame)
		if err != nil {
			return nil, nil, err
		}
		if kind, encoded, complete, err = parts.add(kind, body); err != nil {
			return nil, nil, err
		}
		if kind != frameTable {
			return nil, nil, fmt.Errorf("frame type %d in place of the table", kind)
		}
	}
	t := &rank.Table{}
	if err := decode(encoded, t); err != nil {
		return nil, nil, err
	}
	if err := t.Verify(); err != nil {
		return nil, nil, err
	}
	h := o.hello
	switch {
	case t.Digest != h.Digest:
		return nil, nil, fmt.Errorf("digest %x announced, %x received", h.Digest[:8], t.Digest[:8])
	case h.Proc < 0 || int(h.Proc) >= len(t.Procs) || t.Procs[h.Proc].Nonce != c.cfg.Record.Nonce:
		return nil, nil, fmt.Errorf("process %d of the table is not this process", h.Proc)
	case h.Proc == 0 || tableTree(t, c.cfg.TreeArity).parent(h.Proc) != h.Parent:
		return nil, nil, fmt.Errorf("process %d is not the parent of process %d", h.Parent, h.Proc)
	}
	return t, encoded, nil
}

// formed seals the subtree of this process and returns the group, or closes
// everything that was opened for it.
func (g *Group) formed(ctx context.Context, encoded []byte) (*Group, error) {
	begin := g.clock.Now()
	g.wg.Go(g.watch)
	err := g.form(ctx, encoded)
	if err != nil {
		g.closed.Store(true)
		g.closeOnce.Do(func() { close(g.closing) })
		g.leave()
		return nil, err
	}
	g.sealNS = g.clock.Now() - begin
	return g, nil
}

func (g *Group) form(ctx context.Context, encoded []byte) (err error) {
	dialling, stop := context.WithCancel(ctx)
	var dials sync.WaitGroup
	for i, p := range g.tree.children(g.self) {
		dials.Go(func() { g.adopt(dialling, i, p, encoded) })
	}
	halt := func() {
		stop()
		dials.Wait()
	}
	defer halt()

	waiting := map[rank.Proc]struct{}{}
	for _, p := range g.tree.children(g.self) {
		waiting[p] = struct{}{}
	}
	acked := func() error {
		if len(waiting) > 0 {
			return nil
		}
		if g.parent == nil {
			return nil
		}
		return g.parent.sendMessage(frameTableAck, tableAck{Count: len(g.tree.subtree(g.self)), Digest: g.table.Digest})
	}
	back, trips := 0, 0
	var tripBegin time.Time
	times := []time.Duration{}
	// trip goes down, or comes back where nobody is below. A link that fails says so in a note.
	trip := func() {
		back = len(g.children)
		tripBegin = time.Now()
		if back == 0 && g.parent != nil {
			_ = g.parent.send(frameTripBack, nil)
		}
		_ = g.broadcast(frameTrip, nil)
	}

	if err := acked(); err != nil {
		return g.fail(ctx, halt, rank.AsError(err, rank.KindInternal))
	}
	if g.parent == nil && len(g.children) == 0 {
		g.over(nil)
		return nil
	}
	for {
		select {
		case <-g.noted:
		case <-ctx.Done():
			if e, ok := errors.AsType[*rank.Error](context.Cause(ctx)); ok { // those below end as this process does
				return g.fail(ctx, halt, e)
			}
			text := "the rank table was not sealed in time"
			if len(waiting) > 0 {
				text = fmt.Sprintf("no acknowledgement of the rank table from %s", g.names(waiting))
			}
			return g.fail(ctx, halt, rank.Errorf(rank.KindRendezvous, "%s: %w", text, context.Cause(ctx)))
		}
		notes := g.takeNotes()
		for i, n := range notes {
			switch {
			case n.kind == noteEnded:
				g.upEnded = g.upEnded || n.l.up
				return g.fail(ctx, halt, n.err, notes[i+1:]...)
			case n.kind == frameRefuse && !n.l.up:
				return g.fail(ctx, halt, g.sealError(n.l.proc, "refused the rank table: %s", clip(n.body)))
			case n.kind == frameTableAck && !n.l.up:
				var ack tableAck
				if err := decode(n.body, &ack); err != nil {
					return g.fail(ctx, halt, g.sealError(n.l.proc, "sent a broken acknowledgement: %w", err))
				}
				if want := len(g.tree.subtree(n.l.proc)); ack.Count != want || ack.Digest != g.table.Digest {
					return g.fail(ctx, halt, g.sealError(n.l.proc, "acknowledged %d processes with digest %x, expected %d with %x",
						ack.Count, ack.Digest[:8], want, g.table.Digest[:8]))
				}
				if _, ok := waiting[n.l.proc]; !ok {
					continue
				}
				delete(waiting, n.l.proc)
				if err := acked(); err != nil {
					return g.fail(ctx, halt, rank.AsError(err, rank.KindInternal), notes[i+1:]...)
				}
				if g.parent == nil && len(waiting) == 0 {
					trip()
				}
			case n.kind == frameTrip && n.l.up && len(waiting) == 0:
				trip()
			case n.kind == frameTripBack && !n.l.up && back > 0:
				if back--; back > 0 {
					continue
				}
				if g.parent != nil {
					_ = g.parent.send(frameTripBack, nil)
					continue
				}
				times = append(times, time.Since(tripBegin))
				if trips++; trips < treeTrips {
					trip()
					continue
				}
				g.treeTime = median(times) / 2
				g.over(notes[i+1:])
				return g.broadcast(frameSealed, nil)
			case n.kind == frameSealed && n.l.up && len(waiting) == 0:
				g.over(notes[i+1:])
				return g.broadcast(frameSealed, nil)
			case n.kind == frameSealFailed:
				e := &rank.Error{}
				if err := decode(n.body, e); err != nil {
					e = g.sealError(n.l.proc, "ended the seal without a readable reason: %w", err)
				}
				if n.l.up {
					halt()
					_ = g.broadcast(frameSealFailed, n.body)
					return told{e}
				}
				return g.fail(ctx, halt, e)
			default:
				return g.fail(ctx, halt, g.sealError(n.l.proc, "sent frame type %d out of turn", n.kind))
			}
		}
	}
}

// over ends the seal; links that ended meanwhile, told by rest or later, become
// events.
func (g *Group) over(rest []sealNote) {
	g.mu.Lock()
	g.sealOver = true
	notes := append(rest, g.notes...)
	g.notes = nil
	g.mu.Unlock()
	for _, n := range notes {
		if n.kind != noteEnded {
			continue
		}
		kind := ChildLost
		if n.l.up {
			kind = ParentLost
		}
		g.push(Event{Kind: kind, Proc: n.l.proc, At: g.clock.Now(), Err: n.err})
	}
}

// fail ends the seal for e. Process 0 tells everybody; others tell upwards and
// wait a little for process 0's verdict, which may name an earlier cause. rest
// are notes taken but not looked at yet.
func (g *Group) fail(ctx context.Context, halt func(), e *rank.Error, rest ...sealNote) error {
	halt() // no child comes after this
	body, err := msgpack.Marshal(e)
	if err != nil {
		body = nil
	}
	var verdict error = e
	// A write that failed says only that the parent closed the link; its reason may still be on the way to be read.
	if g.parent != nil && !g.upEnded {
		_ = g.parent.send(frameSealFailed, body)
		timer := time.NewTimer(failWait)
		defer timer.Stop()
	wait:
		for notes := rest; ; notes = g.takeNotes() {
			for _, n := range notes {
				switch {
				case n.l.up && n.kind == frameSealFailed:
					got := &rank.Error{}
					if decode(n.body, got) == nil {
						verdict, body = told{got}, n.body // process 0 tells the user
					}
					break wait
				case n.l.up && n.kind == noteEnded:
					break wait
				}
			}
			select {
			case <-g.noted:
			case <-timer.C:
				break wait
			case <-ctx.Done():
				break wait
			}
		}
	}
	_ = g.broadcast(frameSealFailed, body)
	return verdict
}

func (g *Group) sealError(p rank.Proc, format string, args ...any) *rank.Error {
	e := rank.Errorf(rank.KindRendezvous, format, args...)
	e.Proc, e.Host = p, g.table.Procs[p].Host
	return e
}

// names lists some processes with their hosts.
func (g *Group) names(procs map[rank.Proc]struct{}) string {
	list := []string{}
	for _, p := range g.tree.children(g.self) {
		if _, ok := procs[p]; ok {
			list = append(list, fmt.Sprintf("process %d (%s)", p, g.table.Procs[p].Host))
		}
	}
	const most = 8
	if len(list) > most {
		list = append(list[:most], fmt.Sprintf("%d more", len(list)-most))
	}
	return strings.Join(list, ", ")
}

// clip makes foreign text fit for one line.
func clip(b []byte) string {
	s := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(string(b[:min(len(b), 300)]), "?"))
	return s
}

// median of at least one duration; sorts d.
func median(d []time.Duration) time.Duration {
	for i := range d {
		for j := i; j > 0 && d[j] < d[j-1]; j-- {
			d[j], d[j-1] = d[j-1], d[j]
		}
	}
	return d[len(d)/2]
}
