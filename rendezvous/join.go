package rendezvous

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"rankstorm/rank"
)

const (
	defaultJoinTimeout   = 60 * time.Second
	defaultProcsPerAgent = 64
	// DefaultAgentsAbove is the number of processes up to which every one gossips.
	DefaultAgentsAbove = 16

	firstRetry    = 5 * time.Millisecond
	slowestRetry  = 500 * time.Millisecond
	knockDial     = 3 * time.Second // to reach the controller, one attempt
	knockAnswer   = 5 * time.Second // for its answer; then the knock is repeated
	lonelyNotice  = 5 * time.Second // without a controller, until the user is told
	lonelyRepeats = 15 * time.Second
)

// Join brings this process into the job that cfg describes and returns when
// the job is sealed: all processes have the same rank table, and the control
// tree stands. The process on whose host the controller's address is, and that
// gets the port, becomes the controller by itself.
//
// Errors are *rank.Error: KindUsage (cfg is impossible, or the controller port
// belongs to another program), KindResource (no port), KindRefused (the
// controller does not want this process; the text says why), KindRendezvous
// (the job did not form within JoinTimeout; the text says who is missing),
// KindLost (a process died while the table was handed out). If ctx ends, Join
// returns its cause. In any case all that Join started has ended when it
// returns an error, and will end with Group.Close otherwise; that holds for
// cfg.Listener and cfg.Packet too.
func Join(ctx context.Context, cfg Config) (*Group, error) {
	j, err := newJoiner(cfg)
	var g *Group
	if err == nil {
		if g, err = j.run(ctx); err != nil {
			j.endLife()
		}
	}
	if err != nil {
		if cfg.Listener != nil {
			cfg.Listener.Close()
		}
		if cfg.Packet != nil {
			cfg.Packet.Close()
		}
		return nil, err
	}
	return g, nil
}

// outcome ends a Join.
type outcome struct {
	g   *Group
	err error
}

// joiner is one process's way into a job.
type joiner struct {
	cfg  Config
	addr controllerAddress
	job  [32]byte
	ctl  *control

	outcomes chan outcome
	sealing  atomic.Bool // the table is on its way: a little more patience
	settled  atomic.Bool // the job is sealed
	notices  chan string
	joining  context.Context // until the outcome
	life     context.Context // until the group is closed
	endLife  context.CancelFunc
	tasks    sync.WaitGroup // end with joining
	lasting  sync.WaitGroup // end with life

	stopAwait context.CancelFunc
	awaited   chan struct{} // await has returned
	sealOnce  sync.Once

	mu         sync.Mutex
	member     *gossip
	controller *controller
	link       net.Conn         // to the controller, nil if none or if this is the controller
	facts      string           // the controller's last word about who is missing
	problem    string           // why the controller could not be reached
	nameless   bool             // because its name does not resolve
	muted      netip.AddrPort   // if that is because it does not answer
	toldBy     string           // name of the controller
	begun      time.Time        // this Join
	lostAt     time.Duration    // since begun: when the link to that controller ended
	lostWhy    string           // how; "": it stands
	heard      time.Time        // last sign of life on it
	trouble    string           // what this process lacks, "" nothing
	seeds      []netip.AddrPort // where it gossips; nil at the controller
	census     waiting          // the controller's count of members and agents, where this process is none
	agentOnce  sync.Once
}

func newJoiner(cfg Config) (*joiner, error) {
	usage := func(format string, args ...any) (*joiner, error) {
		return nil, rank.Errorf(rank.KindUsage, format, args...)
	}
	if cfg.Network == nil {
		cfg.Network = Machine()
	}
	for _, d := range []struct {
		d   *time.Duration
		def time.Duration
	}{{&cfg.JoinTimeout, defaultJoinTimeout}, {&cfg.LivenessTimeout, defaultLiveness}} {
		if *d.d == 0 {
			*d.d = d.def
		}
	}
	for _, n := range []struct {
		n   *int
		def int
	}{{&cfg.TreeArity, defaultTreeArity}, {&cfg.ProcsPerAgent, defaultProcsPerAgent}, {&cfg.AgentsAbove, DefaultAgentsAbove}} {
		if *n.n == 0 {
			*n.n = n.def
		}
	}
	switch {
	case cfg.Procs < 1:
		return usage("%d processes: give at least 1 (-P)", cfg.Procs)
	case cfg.K < 1:
		return usage("%d ranks per process: give at least 1", cfg.K)
	case cfg.Record.LauncherProc >= cfg.Procs:
		return usage("process number %d is outside 0 … %d: correct --rank or -P", cfg.Record.LauncherProc, cfg.Procs-1)
	case cfg.JoinTimeout < 0 || cfg.LivenessTimeout < 0:
		return usage("a timeout below 0: give a positive one")
	case cfg.TreeArity < 1 || cfg.ProcsPerAgent < 1 || cfg.AgentsAbove < 0:
		return usage("tree arity %d, %d processes per agent: give at least 1", cfg.TreeArity, cfg.ProcsPerAgent)
	case (cfg.Listener == nil) != (cfg.Packet == nil):
		return usage("an inherited controller port needs both its listener and its packet socket")
	}
	addr, err := parseController(cfg.Controller, cfg.Port)
	if err != nil {
		return nil, err
	}
	if cfg.JobKey == "" {
		cfg.JobKey = addr.key()
	}
	if a, err := netip.ParseAddr(addr.host); err == nil && a.Zone() != "" {
		cfg.Network = zoned{cfg.Network, a.Zone()}
	}
	cfg.Settings = slices.Clone(cfg.Settings)
	slices.SortStableFunc(cfg.Settings, func(a, b rank.KV) int { return strings.Compare(a.Key, b.Key) })
	if cfg.Record.Nonce == [16]byte{} {
		if _, err := rand.Read(cfg.Record.Nonce[:]); err != nil {
			return nil, rank.Errorf(rank.KindResource, "no random numbers: %w", err)
		}
	}
	if cfg.Record.BuildID == "" {
		cfg.Record.BuildID = BuildID()
	}
	if cfg.Record.Host == "" {
		if cfg.Record.Host, err = os.Hostname(); err != nil {
			return nil, rank.Errorf(rank.KindResource, "this host has no name: %w; set RANKSTORM_HOST", err)
		}
	}
	j := &joiner{
		cfg: cfg, addr: addr, job: jobHash(cfg.JobKey),
		begun: time.Now(), outcomes: make(chan outcome, 8), notices: make(chan string, 64), awaited: make(chan struct{}),
	}
	if err := checkOwn(j.knock()); err != nil {
		return nil, err
	}
	j.life, j.endLife = context.WithCancel(context.Background())
	return j, nil
}

// runID names a run: UTC time and 4 random bytes.
func runID(now time.Time) string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails (Go 1.24)
	return now.UTC().Format("20060102T150405Z") + "-" + hex.EncodeToString(b[:])
}

func (j *joiner) run(ctx context.Context) (*Group, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	j.stayHome(ctx)
	ctl, err := openControl(&j.cfg)
	if err != nil {
		return nil, err
	}
	j.ctl = ctl
	ctl.mux.onScarce(j.lacks)
	start := ctl.clock.Now()
	joining, stopJoining := context.WithCancelCause(ctx)
	j.joining = joining
	noticed, noMore := make(chan struct{}), make(chan struct{})
	go j.tellUser(noticed, noMore)

	awaiting, stopAwait := context.WithCancel(joining)
	j.stopAwait = stopAwait
	j.tasks.Go(func() {
		defer close(j.awaited)
		g, err := ctl.await(awaiting)
		if g != nil || awaiting.Err() == nil {
			j.end(outcome{g, err})
		}
	})
	j.tasks.Go(func() { j.seek(joining) })

	g, err := j.decide(ctx)
	if err == nil {
		j.hangUp(frameInPlace, nil)
	} else {
		j.tellFailure(err)
	}
	stopJoining(err)
	j.tasks.Wait()
	close(noMore)
	<-noticed
	for extra := true; extra; { // what came after the decision
		select {
		case o := <-j.outcomes:
			if o.g != nil && o.g != g {
				o.g.Close()
			}
		default:
			extra = false
		}
	}
	if err != nil {
		j.ctl.close()
		j.close()
		return nil, err
	}
	j.settle(g, start)
	return g, nil
}

// decide waits for the first outcome.
func (j *joiner) decide(ctx context.Context) (*Group, error) {
	patience := time.NewTimer(j.cfg.JoinTimeout)
	defer patience.Stop()
	extended := false
	for {
		select {
		case o := <-j.outcomes:
			return o.g, o.err
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-patience.C:
			if j.sealing.Load() && !extended {
				extended = true
				patience.Reset(j.cfg.LivenessTimeout)
				continue
			}
			why := j.timedOut()
			select {
			case o := <-j.outcomes: // at the same moment; whatever why says of it is half of the story
				return o.g, o.err
			default:
			}
			return nil, why
		}
	}
}

// end proposes an outcome; only the first one counts.
func (j *joiner) end(o outcome) {
	select {
	case j.outcomes <- o:
	default:
		if o.g != nil {
			o.g.Close()
		}
	}
}

// told is a failure that the controller tells the user about.
type told struct{ cause *rank.Error }

func (t told) Error() string { return t.cause.Error() }
func (t told) Unwrap() error { return t.cause }

// ToldElsewhere marks an error that somebody else tells the user about.
func ToldElsewhere(e *rank.Error) error { return told{e} }

// Told says that an error of Join concerns the whole job and that the
// controller, which is in touch, tells the user about it: once is enough.
func Told(err error) bool {
	var t told
	return errors.As(err, &t)
}

// tellUser passes notices on from one goroutine, those queued at the end too.
func (j *joiner) tellUser(done chan<- struct{}, noMore <-chan struct{}) {
	defer close(done)
	tell := func(text string) {
		if j.cfg.Notice != nil {
			j.cfg.Notice(text)
		}
	}
	for {
		select {
		case text := <-j.notices:
			tell(text)
			continue
		case <-noMore:
		}
		for {
			select {
			case text := <-j.notices:
				tell(text)
			default:
				return
			}
		}
	}
}

// say queues a notice; when the user's terminal is slower than the news, some
// are dropped.
func (j *joiner) say(text string) {
	select {
	case j.notices <- text:
	default:
	}
}

// tellFailure says goodbye to the controller, or, at the controller, to all.
func (j *joiner) tellFailure(err error) {
	j.mu.Lock()
	c := j.controller
	j.mu.Unlock()
	var cause *rank.Error
	if !errors.As(err, &cause) {
		return // no verdict on the job: this process just leaves, as if it had died
	}
	if c != nil {
		c.fail(cause)
	}
	j.hangUp(frameJobFailed, cause)
}

// hangUp says a last word to the controller.
func (j *joiner) hangUp(kind byte, v any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.link == nil {
		return
	}
	j.link.SetWriteDeadline(time.Now().Add(time.Second))
	if v == nil {
		_ = writeFrame(j.link, kind, nil) // a courtesy: the controller sees the end of the link as well
	} else {
		_ = writeMessage(j.link, kind, v)
	}
	j.link.Close()
	j.link = nil
}

// settle binds what goes on after the seal to the group.
func (j *joiner) settle(g *Group, start int64) {
	j.settled.Store(true)
	j.ctl.mux.onScarce(nil)
	gather := max(0, j.ctl.clock.Now()-start-g.sealNS)
	if j.controller != nil {
		j.controller.settled(g.refused)
	}
	procs := map[[16]byte]rank.Proc{}
	for p := range g.table.Procs {
		procs[g.table.Procs[p].Nonce] = rank.Proc(p)
	}
	j.mu.Lock()
	member := j.member
	j.mu.Unlock()
	if member != nil {
		member.onLost(func(lost [][16]byte) {
			for _, nonce := range lost {
				if p, ok := procs[nonce]; ok && p != g.self {
					g.suspect(p)
				}
			}
		})
	}
	g.extra = func(s *Stats) {
		s.GatherNS = gather
		s.Controller = j.addr.String()
		j.mu.Lock()
		member := j.member
		s.Members, s.Agents = j.census.Members, j.census.Agents
		j.mu.Unlock()
		if member != nil {
			member.stats(s)
		}
	}
	g.onClose = append(g.onClose, j.close)
}

// close ends what lives as long as the group.
func (j *joiner) close() {
	j.endLife()
	if j.controller != nil {
		j.controller.close()
	}
	j.lasting.Wait()
	j.mu.Lock()
	member := j.member
	j.mu.Unlock()
	if member != nil {
		member.close()
	}
	if j.cfg.Packet != nil {
		j.cfg.Packet.Close()
	}
}

// knock is what this process says to the controller.
func (j *joiner) knock() knock {
	return knock{
		Proto: knockVersion, Job: j.job, JobKey: j.cfg.JobKey, Procs: j.cfg.Procs, K: j.cfg.K,
		Settings: j.cfg.Settings, Record: j.cfg.Record,
	}
}

// gossip of this process, nil if it is no member.
func (j *joiner) gossip() *gossip {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.member
}

// beMember makes this process a gossip member if it is none.
func (j *joiner) beMember() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.member != nil {
		return nil
	}
	g, err := startGossip(j.ctl, j.job, &j.cfg.Record)
	if err != nil {
		return err
	}
	j.member = g
	if j.seeds != nil {
		g.setSeeds(j.seeds)
	}
	return nil
}

// takeTable seals the job: this is process 0.
func (j *joiner) takeTable(t *rank.Table) {
	j.sealing.Store(true)
	j.sealOnce.Do(func() {
		j.tasks.Go(func() {
			j.stopAwait()
			<-j.awaited
			g, err := j.ctl.seal(j.joining, t)
			j.end(outcome{g, err})
		})
	})
}
