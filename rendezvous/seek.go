package rendezvous

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"rankstorm/rank"
)

// seek finds the controller, or becomes it, and stays with it. It ends with ctx
// or with an outcome.
func (j *joiner) seek(ctx context.Context) {
	if j.cfg.Listener != nil {
		j.advertise(addrPortOf(j.cfg.Listener.Addr()))
		if err := j.beController(j.cfg.Listener); err != nil {
			j.end(outcome{err: err})
			return
		}
		<-ctx.Done()
		return
	}
	begun, told := time.Now(), time.Time{}
	retry := newBackoff(firstRetry, slowestRetry)
	for ctx.Err() == nil {
		reached, err := j.attempt(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			j.end(outcome{err: err})
			return
		case reached:
			begun, told = time.Now(), time.Time{}
			retry = newBackoff(firstRetry, slowestRetry)
		}
		if now := time.Now(); now.Sub(begun) > lonelyNotice && now.Sub(told) > lonelyRepeats {
			told = now
			j.mu.Lock()
			problem, muted := j.problem, j.muted
			j.mu.Unlock()
			problem = j.whyNot(problem, muted)
			j.say(fmt.Sprintf("no controller at %s for %d s: %s; trying on", j.where(), int(now.Sub(begun).Seconds()), problem))
		}
		if retry.wait(ctx) != nil {
			return
		}
	}
}

// attempt looks for the controller once, at all its addresses. reached: it let
// this process in, but is gone again. An error is final.
func (j *joiner) attempt(ctx context.Context) (reached bool, err error) {
	addrs, err := j.cfg.Network.Resolve(ctx, j.addr.host)
	if err != nil || len(addrs) == 0 {
		j.failed("its name does not resolve: %v", err)
		j.mu.Lock()
		j.nameless = true
		j.mu.Unlock()
		return false, nil
	}
	// Every process of a job tries the families of a name in the same order, whatever its resolver prefers, so that all
	// reach the controller by one, advertise that, and meet there. Another one is for who has no way by the first.
	slices.SortStableFunc(addrs, func(a, b netip.Addr) int { return familyOrder(a) - familyOrder(b) })
	local, err := j.cfg.Network.LocalAddrs()
	if err != nil {
		return false, rank.Errorf(rank.KindResource, "cannot list the local addresses: %w", err)
	}
	for _, a := range addrs {
		to := netip.AddrPortFrom(a.Unmap(), j.addr.port)
		if !isOwn(to.Addr(), local) {
			continue
		}
		ln, err := j.listenAsController(to)
		if err != nil {
			return false, err
		}
		if ln != nil {
			j.advertise(to)
			if err := j.beController(ln); err != nil {
				return false, err
			}
			<-ctx.Done()
			return true, nil
		}
		break // another process of this host has it
	}
	for _, a := range addrs {
		to := netip.AddrPortFrom(a.Unmap(), j.addr.port)
		reached, err := j.session(ctx, to)
		if err != nil || reached {
			return reached, err
		}
	}
	return false, nil
}

// where is the controller's address and how this process knows it.
func (j *joiner) where() string {
	if from := j.cfg.Launch.ControllerFrom; from != "" {
		return fmt.Sprintf("%s (%s)", j.addr, from)
	}
	return j.addr.String()
}

// failed notes why the controller cannot be reached.
func (j *joiner) failed(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.problem, j.nameless = fmt.Sprintf(format, args...), false
}

// awaits notes that an address is silent until it answers. What an attempt before it met says more.
func (j *joiner) awaits(to netip.AddrPort) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.problem == "" || j.nameless {
		j.problem, j.nameless = fmt.Sprintf("%s does not answer", to), false
	}
}

// listenAsController tries to get the controller port. Neither listener nor
// error: somebody else has it, or the address is not this host's after all.
func (j *joiner) listenAsController(to netip.AddrPort) (net.Listener, error) {
	at := []netip.AddrPort{to}
	if !j.addr.literal && len(j.cfg.BindAddrs) == 0 {
		// The others may know another address by that name.
		at = []netip.AddrPort{netip.AddrPortFrom(netip.IPv6Unspecified(), to.Port()), netip.AddrPortFrom(netip.IPv4Unspecified(), to.Port())}
	}
	var err error
	for _, a := range at {
		var ln net.Listener
		if ln, err = j.cfg.Network.Listen(a); err == nil {
			return ln, nil
		}
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, nil
		}
	}
	if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return nil, nil
	}
	return nil, rank.Errorf(rank.KindResource, "cannot listen as the controller: %w; give another port with -C host:port", err)
}

// advertise chooses the addresses in this process's record.
func (j *joiner) advertise(controller netip.AddrPort) {
	if j.cfg.Record.Control != nil {
		return // given by the caller, or chosen before: others may know them already
	}
	source, err := j.cfg.Network.SourceAddr(controller)
	if err != nil {
		source = netip.Addr{}
	}
	addrs := controlAddrs(j.ctl.addrs(), source, j.addr.literal)
	j.cfg.Record.Control = addrs[:min(len(addrs), maxControl)]
}

// beController starts the controller here.
func (j *joiner) beController(ln net.Listener) error {
	c, err := startController(j, ln)
	if err != nil {
		return err
	}
	j.mu.Lock()
	j.controller = c
	j.mu.Unlock()
	if j.cfg.Procs > j.cfg.AgentsAbove {
		j.seekAgent()
	}
	return nil
}

// seekAgent finds, or becomes, the host's agent, once.
func (j *joiner) seekAgent() {
	j.agentOnce.Do(func() {
		j.lasting.Go(func() {
			if err := j.findAgent(j.life); err != nil {
				j.end(outcome{err: err})
			}
		})
	})
}

const muteController = "%s accepts connections but does not answer; "

// mute notes that somebody has the controller port and says nothing.
func (j *joiner) mute(to netip.AddrPort) {
	j.failed(muteController, to)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.muted = to
}

// whyNot is the problem as the user reads it: to find out who is mute takes a look at all processes.
func (j *joiner) whyNot(problem string, muted netip.AddrPort) string {
	if problem != fmt.Sprintf(muteController, muted) {
		return problem
	}
	if who := j.holder(muted); who != "" {
		return problem + "the port belongs to " + who
	}
	return problem + "it may be another program"
}

// session knocks at one address and stays with the controller until it is
// gone. reached: it let this process in. An error is final.
func (j *joiner) session(ctx context.Context, to netip.AddrPort) (reached bool, err error) {
	j.awaits(to)
	dialling, cancel := context.WithTimeout(ctx, knockDial)
	conn, err := j.ctl.dial(dialling, kindKnock, to)
	cancel()
	var final *rank.Error
	var other *stranger
	switch {
	case errors.As(err, &final):
		return false, final
	case errors.As(err, &other):
		return false, j.stranger(to, other)
	case err != nil:
		j.failed("%v", err)
		return false, nil
	}
	j.mute(to) // until it does
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	j.advertise(to)
	conn.SetDeadline(time.Now().Add(knockAnswer))
	if err := writeMessage(conn, frameKnock, j.knock()); err != nil {
		j.failed("%v", err)
		return false, nil
	}
	heard := &overheard{Reader: conn}
	r := bufio.NewReaderSize(heard, 4096)
	kind, body, err := readBody(r, maxFrame, frameWelcome, frameTurnAway)
	var netErr net.Error
	switch {
	case ctx.Err() != nil:
		return false, nil
	case err != nil && foreign(heard.begin):
		return false, j.stranger(to, &stranger{said: heard.begin})
	case errors.Is(err, os.ErrDeadlineExceeded):
		j.mute(to)
		return false, nil
	case errors.Is(err, io.EOF) || errors.As(err, &netErr):
		j.failed("%s closed the connection without an answer", to)
		return false, nil
	case err != nil:
		return false, j.stranger(to, &stranger{heard.begin, err})
	}
	if kind == frameTurnAway {
		var t turnAway
		if err := decode(body, &t); err != nil {
			t.Text = "the controller refused this process and gave no reason"
		}
		return false, rank.Errorf(rank.KindRefused, "%s", clip([]byte(t.Text)))
	}
	var w welcome
	if err := decode(body, &w); err != nil {
		return false, j.stranger(to, &stranger{heard.begin, err})
	}
	w.Seeds = reachableSeeds(w.Seeds, to.Addr())
	j.welcomed(conn, &w)
	why, err := j.follow(ctx, conn, r)
	if err != nil {
		j.end(outcome{err: err}) // before it is known that the link is gone: the controller has said all
	}
	j.parted(conn, why)
	return true, err
}

// reachableSeeds sorts the controller's gossip addresses: the one it answered
// at comes first. Loopback ones are somebody else's unless it answered there.
func reachableSeeds(seeds []netip.AddrPort, at netip.Addr) []netip.AddrPort {
	var first, rest []netip.AddrPort
	for _, s := range seeds {
		switch {
		case s.Addr() == at || s.Addr().IsLoopback() && at.IsLoopback():
			first = append(first, s)
		case !s.Addr().IsLoopback():
			rest = append(rest, s)
		}
	}
	return append(first, rest...)
}

// welcomed begins to gossip.
func (j *joiner) welcomed(conn net.Conn, w *welcome) {
	j.mu.Lock()
	j.link, j.toldBy, j.facts, j.lostWhy = conn, clip([]byte(w.Controller)), "", ""
	j.heard = time.Now()
	j.seeds = w.Seeds
	j.mu.Unlock()
	j.tellTrouble()
	if j.cfg.Procs > j.cfg.AgentsAbove {
		j.seekAgent()
	} else if err := j.beMember(); err != nil {
		j.end(outcome{err: err})
		return
	}
	if g := j.gossip(); g != nil {
		g.setSeeds(w.Seeds)
	}
}

// parted ends welcomed.
func (j *joiner) parted(conn net.Conn, why error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.link == conn {
		j.link = nil
	}
	j.problem = j.goneText()
	j.lostAt, j.lostWhy = time.Since(j.begun), "its link closed"
	if errors.Is(why, os.ErrDeadlineExceeded) {
		j.lostWhy = fmt.Sprintf("silent for %v", j.cfg.LivenessTimeout)
	}
}

// follow listens to the controller until it is gone (why) or the job is over (err).
func (j *joiner) follow(ctx context.Context, conn net.Conn, r *bufio.Reader) (why, err error) {
	for {
		conn.SetReadDeadline(time.Now().Add(j.cfg.LivenessTimeout))
		kind, body, err := readBody(r, maxFrame, frameWait, frameTakeTable, frameJobFailed, frameThere)
		if err != nil {
			return err, nil
		}
		j.mu.Lock()
		j.heard = time.Now()
		j.mu.Unlock()
		switch kind {
		case frameThere:
			conn.SetWriteDeadline(time.Now().Add(j.cfg.LivenessTimeout))
			_ = writeFrame(conn, frameHere, nil) // a controller that has gone may have left a last word, which is read next
		case frameWait:
			var w waiting
			if err := decode(body, &w); err != nil {
				return err, nil
			}
			if w.Sealing {
				j.sealing.Store(true)
			}
			j.mu.Lock()
			if w.Text != "" {
				j.facts = clip([]byte(w.Text))
			}
			if w.Members > 0 {
				j.census = w
			}
			j.mu.Unlock()
		case frameTakeTable:
			t := &rank.Table{}
			if err := decode(body, t); err != nil {
				return nil, rank.Errorf(rank.KindRendezvous, "the controller's rank table is not readable: %w", err)
			}
			j.takeTable(t)
		case frameJobFailed:
			cause := &rank.Error{Proc: rank.NoProc, Peer: rank.None}
			if err := decode(body, cause); err != nil {
				return nil, rank.Errorf(rank.KindRendezvous, "the controller gave up: %w", err)
			}
			return nil, told{cause}
		}
	}
}
