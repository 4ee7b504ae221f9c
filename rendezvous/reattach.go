package rendezvous

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"rankstorm/rank"
)

// How an orphan finds the root. The root is always the living process with the
// lowest number, so the orphan says hello to all below its own number, a batch
// at a time, and asks the lowest one that says it is alive. That one is the
// root, or about to become it because it has lost the root itself, or knows
// better: then it turns the orphan away. If nobody below answers, the orphan
// is the successor.
//
//	orphan → candidate   orphan hello (who, for whom, digest)
//	candidate → orphan   alive, at once, by the goroutine that took the stream
//	orphan → candidate   ask: the payload for the candidate's user
//	candidate → orphan   adopted: the stream is a link now; or turned away: why
const (
	searchWidth = 128             // processes asked at a time
	aliveWithin = 2 * time.Second // to reach a process and hear that it lives
	askedWithin = 6 * time.Second // for its decision: it may be searching itself
	searchLimit = 8 * time.Second // for all of it
	askTimeout  = aliveWithin + searchLimit
)

type orphanHello struct {
	Proc   rank.Proc `msgpack:"p"`
	Nonce  [16]byte  `msgpack:"n"`
	To     rank.Proc `msgpack:"u"`
	Digest [32]byte  `msgpack:"d"` // of the table
	Job    [32]byte  `msgpack:"j"`
}

// takeOrphan answers an orphan's hello and hands its question on.
func (c *control) takeOrphan(o offer, h orphanHello) {
	g := c.group.Load()
	if g == nil {
		o.refuse("this process is not part of a sealed job")
		return
	}
	if h.Proc < 0 || int(h.Proc) >= len(g.table.Procs) || h.Proc == g.self || h.To != g.self ||
		h.Nonce != g.table.Procs[h.Proc].Nonce || h.Digest != g.table.Digest || h.Job != jobDigest(c.cfg) {
		o.refuse("this process is part of another job")
		return
	}
	asked := make(chan struct{})
	defer close(asked)
	go func() { // whoever says nothing must not hold up the end
		select {
		case <-c.quit:
			o.out.Close()
		case <-asked:
		}
	}()
	o.conn.SetReadDeadline(time.Now().Add(askTimeout))
	if err := writeFrame(o.conn, frameAlive, nil); err != nil {
		o.out.Close()
		return
	}
	_, word, err := readBody(o.r, helloLimit, frameAsk)
	if err != nil {
		o.out.Close()
		return
	}
	o.conn.SetReadDeadline(time.Time{})
	g.mu.Lock()
	before, again := g.askers[h.Proc]
	over := g.closed.Load()
	if !over {
		g.askers[h.Proc] = o
	}
	g.mu.Unlock()
	if again {
		before.out.Close()
	}
	if over {
		o.out.Close()
		return
	}
	g.push(Event{Kind: Orphan, Proc: h.Proc, Payload: word, At: g.clock.Now()})
}

func (g *Group) asker(p rank.Proc) (offer, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	o, ok := g.askers[p]
	delete(g.askers, p)
	return o, ok
}

// Adopt makes the orphan that asked (event Orphan) a child of this process:
// Broadcast and SendDown reach it from now on. If it is gone again that comes
// as ChildLost. It is for the goroutine that reads Events.
func (g *Group) Adopt(p rank.Proc) error {
	o, ok := g.asker(p)
	if !ok {
		return rank.Errorf(rank.KindInternal, "process %d has not asked for a parent", p)
	}
	l := newLink(g, p, false, o.out, o.conn, o.r)
	_ = l.send(frameAdopted, nil) // before anything else on this link; a loss is told as an event
	g.mu.Lock()
	g.adopted = append(g.adopted, l)
	g.mu.Unlock()
	g.start(l)
	return nil
}

// TurnAway tells the orphan that asked (event Orphan) why it finds no parent
// here; it gets the event GivenUp with why. Whoever has not asked hears nothing.
func (g *Group) TurnAway(p rank.Proc, why *rank.Error) {
	o, ok := g.asker(p)
	if !ok {
		return
	}
	g.wg.Go(func() {
		_ = writeMessage(o.conn, frameTurnedAway, why) // whoever does not listen is cut off below
		_ = o.out.flush(refuseWait)
		o.out.Close()
	})
}

// Reattach looks for the root after the parent was lost (event ParentLost).
// word, at most 64 KB, is handed to it with the event Orphan. It returns at
// once; within 8 s one event tells the outcome: Attached (the parent is Proc
// now), Successor (nobody with a lower number answers; Procs are those), or
// GivenUp (the root has given this process up, or there is no way to it: Err).
func (g *Group) Reattach(word []byte) {
	g.wg.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), searchLimit)
		defer cancel()
		over := make(chan struct{})
		defer close(over)
		go func() {
			select {
			case <-g.closing:
				cancel()
			case <-over:
			}
		}()
		g.search(ctx, word)
	})
}

func (g *Group) search(ctx context.Context, word []byte) {
	var gone []rank.Proc
	for first := rank.Proc(0); first < g.self; {
		answers := g.callOut(ctx, first, min(first+searchWidth, g.self))
		for i, a := range answers {
			p := first + rank.Proc(i)
			if a.link != nil {
				if e, ok := g.askFor(ctx, a.link, word); ok {
					closeLinks(answers[i+1:])
					g.push(e)
					if e.Kind == Attached {
						g.start(a.link)
					}
					return
				}
			}
			if a.unknown != nil {
				closeLinks(answers[i+1:])
				g.push(g.noWay(p, "cannot be asked whether it is the root: %w", a.unknown))
				return
			}
			gone = append(gone, p)
		}
		// The last of the answers may be one that lived and went before it decided: those behind it are called again.
		first += rank.Proc(len(answers))
		if ctx.Err() != nil && first < g.self {
			g.push(g.noWay(first, "was not asked: nobody answered within %v", searchLimit))
			return
		}
	}
	g.mu.Lock()
	g.parent = nil
	g.mu.Unlock()
	g.push(Event{Kind: Successor, Proc: g.self, Procs: gone, At: g.clock.Now()})
}

func (g *Group) noWay(p rank.Proc, format string, args ...any) Event {
	return Event{Kind: GivenUp, Proc: p, At: g.clock.Now(), Err: g.lostError(p, format, args...)}
}

func closeLinks(answers []answer) {
	for _, a := range answers {
		if a.link != nil {
			a.link.out.Close()
		}
	}
}

// answer of one process to the hello: a link if it lives. unknown: this side
// was not able to find out.
type answer struct {
	link    *link
	unknown error
}

// callOut says hello to the processes first … last-1 at once. Those behind the
// lowest living one may be left out of the answers.
func (g *Group) callOut(ctx context.Context, first, last rank.Proc) []answer {
	ctx, cancel := context.WithTimeout(ctx, aliveWithin)
	defer cancel()
	type numbered struct {
		i int
		a answer
	}
	n := int(last - first)
	come := make(chan numbered, n)
	for i := range n {
		go func() {
			l, err := g.hail(ctx, first+rank.Proc(i))
			a := answer{link: l}
			if isScarce(err) {
				a.unknown = err
			}
			come <- numbered{i, a}
		}()
	}
	answers, known := make([]answer, n), make([]bool, n)
	next := 0 // all below have answered, and nobody lives
	for left := n; left > 0; left-- {
		c := <-come
		answers[c.i], known[c.i] = c.a, true
		for next < n && known[next] && answers[next].link == nil {
			next++
		}
		if next < n && known[next] { // the lowest living one
			go func(left int) { // the others are not needed
				for range left {
					closeLinks([]answer{(<-come).a})
				}
			}(left - 1)
			closeLinks(answers[next+1:])
			cancel()
			return answers[:next+1]
		}
	}
	return answers
}

// isScarce says that this process, not the other one, is why there is no answer.
func isScarce(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) ||
		errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EADDRNOTAVAIL)
}

// hail reaches p and waits until it says that it lives.
func (g *Group) hail(ctx context.Context, p rank.Proc) (*link, error) {
	var err error
	for {
		for _, a := range g.table.Procs[p].Control {
			var conn net.Conn
			if conn, err = g.c.dial(ctx, kindLink, a); err != nil {
				continue
			}
			var l *link
			if l, err = g.greet(ctx, p, conn); err == nil {
				return l, nil
			}
		}
		if !isScarce(err) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(redialPause):
		}
	}
}

func (g *Group) greet(ctx context.Context, p rank.Proc, conn net.Conn) (*link, error) {
	out := newOutbox(conn)
	stop := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Now()) })
	defer stop()
	stream, err := g.c.wrapped(out, true)
	if err == nil {
		l := newLink(g, p, true, out, stream, bufio.NewReaderSize(stream, readBuffer))
		err = l.sendMessage(frameOrphan, orphanHello{
			Proc: g.self, Nonce: g.table.Procs[g.self].Nonce, To: p, Digest: g.table.Digest, Job: jobDigest(g.c.cfg),
		})
		if err == nil {
			_, _, err = readBody(l.r, helloLimit, frameAlive)
		}
		if err == nil {
			return l, nil
		}
	}
	out.Close()
	return nil, err
}

// askFor asks the one that lives to be the parent. false: it is gone, too.
func (g *Group) askFor(ctx context.Context, l *link, word []byte) (Event, bool) {
	stop := context.AfterFunc(ctx, func() { l.conn.SetReadDeadline(time.Now()) })
	defer stop()
	l.conn.SetReadDeadline(time.Now().Add(askedWithin))
	err := l.send(frameAsk, word)
	var kind byte
	var body []byte
	if err == nil {
		kind, body, err = readBody(l.r, helloLimit, frameAdopted, frameTurnedAway)
	}
	switch {
	case err != nil:
		l.out.Close()
		return Event{}, false
	case kind == frameTurnedAway:
		l.out.Close()
		why := &rank.Error{}
		if err := decode(body, why); err != nil {
			why = g.lostError(l.proc, "gave no readable reason: %w", err)
		}
		return Event{Kind: GivenUp, Proc: l.proc, At: g.clock.Now(), Err: why}, true
	}
	if !stop() {
		l.out.Close()
		return g.noWay(l.proc, "answered too late: %w", fmt.Errorf("not within %v", searchLimit)), true
	}
	l.conn.SetReadDeadline(time.Time{})
	g.mu.Lock()
	g.parent = l
	g.mu.Unlock()
	return Event{Kind: Attached, Proc: l.proc, At: g.clock.Now()}, true
}

// Abandon makes Close leave without a goodbye: to the neighbours this process
// is lost, those below it look for the root.
func (g *Group) Abandon() { g.abandoned.Store(true) }
