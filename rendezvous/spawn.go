package rendezvous

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"rankstorm/rank"
)

// SpawnConfig of a local job.
type SpawnConfig struct {
	N    int      // processes, ≥ 1
	Path string   // executable of the children; "": this one
	Args []string // arguments of the children, without the program's name
	// Typed is the command line that the user gave the parent, for the document; it is told over the pipe.
	Typed []string
	Env   []string // environment of the children; nil: this process's. RANKSTORM_* are taken out
	Hosts int      // the processes pretend to be on this many hosts h0, h1, …, in blocks; 0: no pretence
	// Secret of the job; the children learn its SHA-256, or 32 random bytes if it is empty, over their pipe.
	Secret []byte
	Out    io.Writer // standard output of the children; nil: this process's
	Err    io.Writer // standard error of the children; nil: this process's
}

const (
	spawnGrace    = 5 * time.Second        // that children have once they have no business any more
	spawnLook     = 250 * time.Millisecond // how often stopped children are looked for then
	spawnEnv      = "RANKSTORM_INHERITED"  // numbers of the inherited descriptors
	ownPrefix     = "RANKSTORM_"
	spawnPipeFD   = 3 // first inherited descriptor: the parent's pipe
	spawnMaxLine  = 64 << 10
	spawnMaxTyped = 32 << 10 // bytes of the typed command
)

// OneSignal is how close together SIGINT or SIGTERM may come and still be one
// request: timeout(1) and others send to a process and to its group.
const OneSignal = 100 * time.Millisecond

// spawnHello is the first line on a child's pipe.
type spawnHello struct {
	Controller string   `json:"controller"`
	Proc       int      `json:"proc"`
	Procs      int      `json:"procs"`
	JobKey     string   `json:"job"`
	Secret     []byte   `json:"secret"`
	PID        int      `json:"pid"` // of the parent
	Typed      []string `json:"typed,omitempty"`
	Host       string   `json:"host,omitempty"`
	LocalIndex int      `json:"local_index"`
	LocalSize  int      `json:"local_size"`
}

// spawnEnd is every other line: a child ended in a way that breaks the job.
type spawnEnd struct {
	Proc   int `json:"proc"`
	PID    int `json:"pid"`
	Code   int `json:"code"`
	Signal int `json:"signal,omitempty"`
}

// failure is what the other children make of it.
func (e spawnEnd) failure() *rank.Error {
	err := &rank.Error{Proc: rank.Proc(e.Proc), Peer: rank.None}
	switch {
	case e.Signal != 0:
		err.Kind = rank.KindLost
		err.Text = fmt.Sprintf("process with pid %d was ended by signal %d (%v) before the job was complete", e.PID, e.Signal, syscall.Signal(e.Signal))
		err.Signal = e.Signal
	default:
		err.Kind = kindOfCode(e.Code)
		err.Text = fmt.Sprintf("process with pid %d ended with exit code %d before the job was complete", e.PID, e.Code)
	}
	return err
}

// kindOfCode keeps a usage or rendezvous failure of one process what it is for
// the others, so that all end with the same code.
func kindOfCode(code int) rank.Kind {
	switch code {
	case 2:
		return rank.KindResource
	case 3:
		return rank.KindRendezvous
	}
	return rank.KindLost
}

// spawned is one child.
type spawned struct {
	cmd   *exec.Cmd
	pipe  *os.File // write end
	proc  int
	state *os.ProcessState // nil while it runs
	ours  bool             // killed by us at the end, its signal tells nothing
}

type spawnExit struct {
	child *spawned
	state *os.ProcessState
}

// Spawn runs N processes of a job on this machine and waits for them. They
// share a controller port on 127.0.0.1 that process 0 inherits, and learn their
// place over a pipe (see Inherited). The parent hosts no rank and prints
// nothing. The signals of EndSignals that it gets go to all children, each of which is
// a process group of its own, so that the terminal's Ctrl-C reaches them once;
// a second one kills what still runs. An end of ctx counts as SIGTERM, or as the signal of its cause if that is a
// *rank.Error.
//
// code is the job's exit code: that of process 0, unless that was ended by a
// signal (then it is the code that the survivors agree on). err is not nil only if
// the job could not be started, if no child was left to say how it ended, or if
// it was interrupted, which the children leave to the parent to say.
func Spawn(ctx context.Context, cfg SpawnConfig) (code int, err error) {
	s, err := newSpawn(cfg)
	if err != nil {
		return rank.ExitCode(err), err
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, EndSignals()...)
	defer signal.Stop(signals)

	started := make(chan error, 1)
	over := make(chan struct{})
	threadDone := make(chan struct{})
	go func() {
		// PDEATHSIG counts the death of the thread that forked: it must live as long as the children.
		defer close(threadDone)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		started <- s.start()
		<-over
	}()
	err = <-started
	if err != nil {
		s.signalAll(syscall.SIGKILL)
	}
	s.closeSockets()
	s.wait(ctx, signals)
	close(over)
	<-threadDone
	if err != nil {
		return rank.ExitCode(err), err
	}
	return s.verdict()
}

// EndSignals are the signals that end a job: SIGINT, SIGTERM and, unless nohup
// or its like has turned it off, SIGHUP.
func EndSignals() []os.Signal {
	list := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		list = append(list, syscall.SIGHUP)
	}
	return list
}

type spawn struct {
	cfg      SpawnConfig
	path     string
	env      []string
	hello    spawnHello
	sockets  []*os.File // listener and packet socket of the controller port, for process 0
	children []*spawned
	exits    chan spawnExit
	forced   syscall.Signal // came a second time: the children were killed
	ctxSent  syscall.Signal // what the end of ctx sent, until the same comes as a signal
	sent     map[syscall.Signal]bool
	since    time.Time // of the last one that was passed on
	oomKills int64     // of the machine, before the first child
}

func newSpawn(cfg SpawnConfig) (*spawn, error) {
	switch {
	case cfg.N < 1:
		return nil, rank.Errorf(rank.KindUsage, "--spawn %d: give at least 1 process", cfg.N)
	case cfg.Hosts < 0 || cfg.Hosts > cfg.N:
		return nil, rank.Errorf(rank.KindUsage, "hosts for the spawned processes: %d: give 1 to %d", cfg.Hosts, cfg.N)
	}
	s := &spawn{cfg: cfg, path: cfg.Path, exits: make(chan spawnExit, cfg.N), sent: make(map[syscall.Signal]bool), oomKills: oomKills()}
	if s.path == "" {
		path, err := os.Executable()
		if err != nil {
			return nil, rank.Errorf(rank.KindResource, "cannot find the own executable to spawn: %w", err)
		}
		s.path = path
	}
	env := cfg.Env
	if env == nil {
		env = os.Environ()
	}
	for _, kv := range env {
		if !strings.HasPrefix(kv, ownPrefix) {
			s.env = append(s.env, kv)
		}
	}
	var random [40]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, rank.Errorf(rank.KindResource, "no random numbers: %w", err)
	}
	s.hello.Procs, s.hello.PID = cfg.N, os.Getpid()
	length := 0
	for _, a := range cfg.Typed {
		length += len(strconv.Quote(a)) + 1
	}
	if length < spawnMaxTyped { // the pipe takes a whole line before anybody reads; a longer one is not worth a wait
		s.hello.Typed = cfg.Typed
	}
	s.hello.Secret = random[:32]
	if len(cfg.Secret) > 0 {
		sum := sha256.Sum256(cfg.Secret) // a secret may be longer than a pipe
		s.hello.Secret = sum[:]
	}
	s.hello.JobKey = "spawn-" + hex.EncodeToString(random[32:])
	addr, err := s.openSockets()
	if err != nil {
		return nil, rank.Errorf(rank.KindResource, "no free port on 127.0.0.1 for the spawned job: %w", err)
	}
	s.hello.Controller = addr.String()
	return s, nil
}

// openSockets takes one free port number of 127.0.0.1 for TCP and UDP.
func (s *spawn) openSockets() (addr netip.AddrPort, err error) {
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	for range portTries {
		var ln *net.TCPListener
		ln, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(loopback, 0)))
		if err != nil {
			return addr, err
		}
		addr = addrPortOf(ln.Addr())
		var udp *net.UDPConn
		udp, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(addr))
		if err == nil {
			for _, socket := range []interface{ File() (*os.File, error) }{ln, udp} {
				file, fileErr := socket.File()
				if fileErr != nil {
					err = fileErr
					break
				}
				s.sockets = append(s.sockets, file)
			}
			udp.Close()
		}
		ln.Close() // the duplicates stay
		if err == nil {
			return addr, nil
		}
		s.closeSockets()
	}
	return addr, err
}

func (s *spawn) closeSockets() {
	for _, f := range s.sockets {
		f.Close()
	}
	s.sockets = nil
}

// start starts the children. On an error those that run stay in s.children.
func (s *spawn) start() error {
	for i := range s.cfg.N {
		c, err := s.startOne(i)
		if err != nil {
			return rank.Errorf(rank.KindResource, "cannot start process %d of %d (%s): %w", i, s.cfg.N, s.path, err)
		}
		s.children = append(s.children, c)
		go func() {
			_ = c.cmd.Wait() // what it says is in ProcessState
			s.exits <- spawnExit{c, c.cmd.ProcessState}
		}()
	}
	return nil
}

func (s *spawn) startOne(i int) (*spawned, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	hello := s.hello
	hello.Proc = i
	hello.LocalIndex, hello.LocalSize = i, s.cfg.N
	if h := s.cfg.Hosts; h > 0 {
		// Blocks that differ by one at most: host k has the processes from ⌈k·N/h⌉.
		host := i * h / s.cfg.N
		first, next := ceilDiv(host*s.cfg.N, h), ceilDiv((host+1)*s.cfg.N, h)
		hello.Host = "h" + strconv.Itoa(host)
		hello.LocalIndex, hello.LocalSize = i-first, next-first
	}
	cmd := exec.Command(s.path, s.cfg.Args...)
	cmd.Stdout, cmd.Stderr = orFile(s.cfg.Out, os.Stdout), orFile(s.cfg.Err, os.Stderr)
	cmd.ExtraFiles = []*os.File{r}
	fds := []string{strconv.Itoa(spawnPipeFD)}
	if i == 0 {
		for _, f := range s.sockets {
			fds = append(fds, strconv.Itoa(spawnPipeFD+len(cmd.ExtraFiles)))
			cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		}
	}
	cmd.Env = append(slices.Clone(s.env), spawnEnv+"="+strings.Join(fds, ","))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	// A descendant that keeps an output pipe open must not keep the parent.
	cmd.WaitDelay = spawnGrace
	if err := cmd.Start(); err != nil {
		w.Close()
		return nil, err
	}
	c := &spawned{cmd: cmd, pipe: w, proc: i}
	c.tell(hello)
	return c, nil
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

func orFile(w io.Writer, def *os.File) io.Writer {
	if w == nil {
		return def
	}
	return w
}

// tell writes a line to the child, at once or not at all: a deadline may have
// passed before the write begins, where there are more processes than cores. A
// full or broken pipe is no failure of the parent: the child is stopped or gone,
// and its end will be seen.
func (c *spawned) tell(v any) {
	line, err := json.Marshal(v)
	if err != nil {
		return // plain structs of numbers, strings and bytes always encode
	}
	raw, err := c.pipe.SyscallConn()
	if err != nil {
		return // closed
	}
	_ = raw.Write(func(fd uintptr) bool {
		_, _ = syscall.Write(int(fd), append(line, '\n')) // does not block: os.Pipe made it so
		return true
	})
}

func (s *spawn) signalAll(sig syscall.Signal) {
	s.sent[sig] = true
	if sig != syscall.SIGKILL {
		s.since = time.Now()
	}
	for _, c := range s.children {
		if c.state == nil {
			_ = c.cmd.Process.Signal(sig) // it may have ended just now
		}
	}
}

// wait until all children ended: forward signals, announce ends, and kill what
// stands still after the others are gone.
func (s *spawn) wait(ctx context.Context, signals <-chan os.Signal) {
	ended := ctx.Done()
	var look <-chan time.Time
	var grace time.Time // when the rest is killed; zero: not decided
	for running := len(s.children); running > 0; {
		select {
		case sig := <-signals:
			sysSig := sig.(syscall.Signal)
			if s.ctxSent == sysSig { // the same signal ended ctx a moment ago
				s.ctxSent = 0
				continue
			}
			ended = nil
			if !s.since.IsZero() && time.Since(s.since) < OneSignal {
				continue
			}
			if len(s.sent) > 0 {
				s.forced = sysSig
				s.killRest()
				continue
			}
			s.signalAll(sysSig)
		case <-ended:
			ended = nil
			select {
			case sig := <-signals:
				s.signalAll(sig.(syscall.Signal))
				continue
			default:
			}
			s.ctxSent = syscall.SIGTERM
			var cause *rank.Error
			if errors.As(context.Cause(ctx), &cause) && cause.Signal > 0 {
				s.ctxSent = syscall.Signal(cause.Signal)
			}
			s.signalAll(s.ctxSent)
		case exit := <-s.exits:
			running--
			exit.child.state = exit.state
			exit.child.pipe.Close()
			s.announce(exit.child)
			if look == nil {
				ticker := time.NewTicker(spawnLook)
				defer ticker.Stop()
				look = ticker.C
			}
		case now := <-look:
			if !s.mayKill() {
				grace = time.Time{}
				continue
			}
			if grace.IsZero() {
				grace = now.Add(spawnGrace)
			}
			if now.After(grace) {
				s.killRest()
			}
		}
	}
}

// announce tells the other children of an end that breaks a job which is still
// gathering; later they know better themselves.
func (s *spawn) announce(c *spawned) {
	end := spawnEnd{Proc: c.proc, PID: c.state.Pid(), Code: c.state.ExitCode()}
	if ws, ok := c.state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		end.Signal = int(ws.Signal())
	}
	if end.Code == 0 || c.ours || len(s.sent) > 0 { // after a signal all know why they end
		return
	}
	if end.Signal != 0 { // it could not say so itself
		fmt.Fprintf(orFile(s.cfg.Err, os.Stderr), "rankstorm: process %d (pid %d) was ended by %s\n", end.Proc, end.PID, signalText(syscall.Signal(end.Signal), s.oomKills, oomKills()))
	}
	for _, other := range s.children {
		if other.state == nil {
			other.tell(end)
		}
	}
}

// mayKill says that what still runs has no business any more: the root's
// process ended by itself, or some have ended and only stopped ones are left.
func (s *spawn) mayKill() bool {
	if root := s.children[0].state; root != nil && root.Exited() {
		return true
	}
	for _, c := range s.children {
		if c.state == nil && !stopped(c.cmd.Process.Pid) {
			return false
		}
	}
	return true
}

// stopped says whether a process is stopped by a signal (state T).
func stopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The name in parentheses may contain anything; the state follows the last one.
	i := strings.LastIndexByte(string(stat), ')')
	return i >= 0 && i+2 < len(stat) && stat[i+2] == 'T'
}

func (s *spawn) killRest() {
	for _, c := range s.children {
		if c.state == nil && !c.ours {
			c.ours = true
			_ = c.cmd.Process.Kill()
		}
	}
}

// verdict is the job's code from how the children ended.
func (s *spawn) verdict() (int, error) {
	code, survivors := 0, 0
	var ends []string
	for _, c := range s.children {
		ws, _ := c.state.Sys().(syscall.WaitStatus)
		switch {
		case c.ours:
			ends = append(ends, fmt.Sprintf("process %d (pid %d) stood still and was killed", c.proc, c.state.Pid()))
		case ws.Signaled() && !s.sent[ws.Signal()]:
			ends = append(ends, fmt.Sprintf("process %d (pid %d) was ended by %s", c.proc, c.state.Pid(), signalText(ws.Signal(), -1, -1)))
		default:
			// Process 0 hosts rank 0: its word counts; after a loss the survivors have one code, which is 0 if the end of
			// the job was decided before.
			if survivors == 0 || code == 0 {
				code = c.state.ExitCode()
				if ws.Signaled() { // a signal that was passed on, before the child could answer it
					code = 128 + int(ws.Signal())
				}
			}
			survivors++
		}
	}
	if s.forced != 0 && s.children[0].ours {
		err := rank.Errorf(rank.KindCancelled, "interrupted a second time: the processes were killed before they could report")
		err.Signal = int(s.forced)
		return rank.ExitCode(err), err
	}
	if survivors == 0 {
		return 1, rank.Errorf(rank.KindLost, "no process of the job survived: %s", strings.Join(ends, "; "))
	}
	for sig, name := range map[syscall.Signal]string{syscall.SIGINT: "SIGINT", syscall.SIGTERM: "SIGTERM"} {
		if code == 128+int(sig) {
			err := rank.Errorf(rank.KindCancelled, "interrupted by %s", name)
			err.Signal = int(sig)
			return code, err
		}
	}
	return code, nil
}
