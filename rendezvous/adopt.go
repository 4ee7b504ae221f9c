package rendezvous

import (
	"bufio"
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"rankstorm/rank"
)

// adopt opens the link to child number i and sends the table. Failures go the
// way of notes, as those of a link do.
func (g *Group) adopt(ctx context.Context, i int, p rank.Proc, encoded []byte) {
	fail := func(err *rank.Error) {
		g.mu.Lock()
		g.notes = append(g.notes, sealNote{l: &link{proc: p}, kind: noteEnded, err: err})
		g.mu.Unlock()
		g.nudge()
	}
	conn, err := g.reach(ctx, p)
	if isScarce(err) {
		fail(g.sealError(g.self, "cannot open its link to process %d: %w; raise the limit with ulimit -n", p, err))
		return
	}
	if err != nil {
		fail(g.sealError(p, "cannot be reached at %s: %w; check that the processes' ports are open between the hosts", joinAddrs(g.table.Procs[p].Control), err))
		return
	}
	out := newOutbox(conn)
	conn.SetDeadline(time.Now().Add(childDialTimeout))
	stream, err := g.c.wrapped(out, true)
	if err != nil {
		out.Close()
		fail(g.sealError(p, "secure link refused: %w", err))
		return
	}
	conn.SetDeadline(time.Time{})
	l := newLink(g, p, false, out, stream, bufio.NewReaderSize(stream, readBuffer))
	// Hello and table go out before the link is known to anybody else: no ping
	// may come before or between them.
	err = l.sendMessage(frameHello, hello{
		Proc: p, Nonce: g.table.Procs[p].Nonce, Parent: g.self,
		Digest: g.table.Digest, Job: jobDigest(g.c.cfg),
	})
	if err == nil {
		err = l.send(frameTable, encoded)
	}
	g.mu.Lock()
	g.children[i] = l
	g.mu.Unlock()
	g.start(l)
	if err != nil {
		select {
		case <-l.done: // the reader knows better: what the child said, or how the link ended
			return
		case <-time.After(failWait):
		}
		fail(g.sealError(p, "cannot send the rank table: %w", err))
	}
}

// reach dials p at its addresses in turn, again and again for a few seconds.
func (g *Group) reach(ctx context.Context, p rank.Proc) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, childDialTimeout)
	defer cancel()
	addrs := g.table.Procs[p].Control
	if len(addrs) == 0 {
		return nil, errors.New("no address known")
	}
	begin := time.Now()
	var last error
	for {
		refused := true
		for _, a := range addrs {
			limit := childDialTimeout
			if len(addrs) > 1 {
				limit = oneDialTimeout
			}
			one, cancel := context.WithTimeout(ctx, limit)
			conn, err := g.c.dial(one, kindLink, a)
			cancel()
			if err == nil {
				return conn, nil
			}
			refused = refused && errors.Is(err, syscall.ECONNREFUSED)
			if last == nil || ctx.Err() == nil { // keep what the network said, not that time ran out
				last = err
			}
		}
		if refused && time.Since(begin) >= refusedTimeout {
			return nil, last
		}
		select {
		case <-ctx.Done():
			return nil, last
		case <-time.After(redialPause):
		}
	}
}

func joinAddrs(addrs []netip.AddrPort) string {
	list := make([]string, len(addrs))
	for i, a := range addrs {
		list[i] = a.String()
	}
	return strings.Join(list, ", ")
}
