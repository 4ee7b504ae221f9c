package rendezvous

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/hashicorp/memberlist"

	"rankstorm/rank"
	"rankstorm/rendezvous/memnet"
)

// script is a stream on which somebody says something and goes.
type script struct{ r io.Reader }

func scripted(said []byte) *script { return &script{bytes.NewReader(said)} }

func (s *script) Read(b []byte) (int, error)  { return s.r.Read(b) }
func (s *script) Write(b []byte) (int, error) { return len(b), nil }
func (s *script) Close() error                { return nil }
func (s *script) LocalAddr() net.Addr         { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 7471} }

func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 2), Port: 40000} }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// oneLine demands that a text does not disturb a terminal.
func oneLine(t *testing.T, text string) {
	t.Helper()
	if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) }) {
		t.Errorf("%q would disturb the terminal", text)
	}
}

var fuzzKeys = sync.OnceValues(func() (*keys, error) { return deriveKeys([]byte("secret"), jobHash("fuzz")) })

// What the controller reads after the first byte of a knock, with and without a secret.
func FuzzGreeting(f *testing.F) {
	var knocking bytes.Buffer
	k := knockOf(0, 3)
	if err := writeMessage(&knocking, frameKnock, k); err != nil {
		f.Fatal(err)
	}
	f.Add(knocking.Bytes(), false)
	f.Add(knocking.Bytes(), true)
	f.Add([]byte{}, true)
	f.Add([]byte("\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03"), true)
	f.Add(append([]byte("\x16\x03\x01\x01\xfc\x01\x00\x01\xf8\x03\x03"), make([]byte, 600)...), true)
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), false)
	f.Fuzz(func(t *testing.T, in []byte, secret bool) {
		c := &control{cfg: &Config{JobKey: "fuzz"}}
		if secret {
			var err error
			if c.keys, err = fuzzKeys(); err != nil {
				t.Fatal(err)
			}
		}
		stream, plain, err := c.greet(scripted(in), "n0", func(who string, m mismatch) {
			oneLine(t, m.notice(who))
			oneLine(t, m.told("n0"))
		})
		if err != nil {
			return
		}
		if !plain {
			t.Fatal("a handshake with one who does not listen was completed")
		}
		_, body, err := readBody(bufio.NewReader(stream), maxKnock, frameKnock)
		if err != nil {
			return
		}
		if k, err := decodeKnock(body); err == nil {
			m := inTheClear(&k, knockOf(0, 3))
			oneLine(t, m.notice(who(&k.Record)))
		}
	})
}

// What a process reads where it knocked: another program may sit there.
func FuzzKnockAnswer(f *testing.F) {
	for kind, v := range map[byte]any{
		frameWelcome:   welcome{Controller: "n0", Seeds: []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:7471")}},
		frameTurnAway:  turnAway{Text: "no\nroom"},
		frameWait:      waiting{Text: "waiting"},
		frameJobFailed: rank.Errorf(rank.KindLost, "gone"),
		frameTakeTable: testTable(f, 2, nil),
	} {
		var b bytes.Buffer
		if err := writeMessage(&b, kind, v); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte("SSH-2.0-OpenSSH_9.2p1\r\n"))
	f.Add([]byte{})
	to := netip.MustParseAddrPort("10.0.0.1:7471")
	f.Fuzz(func(t *testing.T, in []byte) {
		oneLine(t, refusedInTheClear(in[:len(in)/2], scripted(in[len(in)/2:])).Error())
		r := bufio.NewReader(bytes.NewReader(in))
		for {
			kind, body, err := readBody(r, maxFrame, frameWelcome, frameTurnAway, frameWait, frameTakeTable, frameJobFailed)
			if err != nil {
				return
			}
			switch kind {
			case frameWelcome:
				var w welcome
				if decode(body, &w) == nil {
					oneLine(t, clip([]byte(w.Controller)))
					if n := len(reachableSeeds(w.Seeds, to.Addr())); n > len(in) {
						t.Errorf("%d seeds out of %d bytes", n, len(in))
					}
				}
			case frameTurnAway:
				var a turnAway
				if decode(body, &a) == nil {
					oneLine(t, clip([]byte(a.Text)))
				}
			case frameWait:
				_ = decode(body, new(waiting))
			case frameTakeTable:
				tab := new(rank.Table)
				if decode(body, tab) == nil && tab.Verify() == nil && tab.Size() < 1 {
					t.Error("a table without ranks passed")
				}
			case frameJobFailed:
				_ = decode(body, new(rank.Error))
			}
		}
	})
}

// What a process reads first on a control link, of a parent or an orphan.
func FuzzLinkHello(f *testing.F) {
	for kind, v := range map[byte]any{frameHello: hello{Proc: 3}, frameOrphan: orphanHello{Proc: 1, To: 0}} {
		var b bytes.Buffer
		if err := writeMessage(&b, kind, v); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add(frame(helloLimit+1, wireVersion, frameHello, 0x80))
	f.Fuzz(func(t *testing.T, in []byte) {
		kind, body, err := readBody(bufio.NewReader(scripted(in)), helloLimit, frameHello, frameOrphan)
		if err != nil {
			return
		}
		if len(body) > helloLimit {
			t.Fatalf("a hello of %d bytes", len(body))
		}
		if kind == frameOrphan {
			_ = decode(body, new(orphanHello))
		} else {
			_ = decode(body, new(hello))
		}
	})
}

// What the agent of a host reads on its socket.
func FuzzHostSocket(f *testing.F) {
	var b bytes.Buffer
	if err := writeMessage(&b, frameSpeakFor, entry{Seq: 1, Record: knockOf(1, 2).Record}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte{0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		e, err := readEntry(bufio.NewReaderSize(scripted(in), 4096))
		if err == nil {
			oneLine(t, who(&e.Record))
		}
	})
}

// What a child reads from the process that spawned it.
func FuzzSpawnPipe(f *testing.F) {
	f.Add([]byte(`{"controller":"127.0.0.1:1","proc":1,"procs":2,"job":"j","secret":"c2VjcmV0","local_index":1,"local_size":2}` + "\n" + `{"proc":0,"pid":7,"code":1}` + "\n"))
	f.Add([]byte(`{"proc":0,"signal":9}` + "\n" + "{\n" + `{"proc":-1,"signal":-9}` + "\n"))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 32<<10 {
			return // more than a pipe takes without a reader
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(in); err != nil {
			t.Fatal(err)
		}
		w.Close()
		inherited, err := inherit(r)
		if err != nil {
			r.Close()
			return
		}
		<-inherited.Parent
		select {
		case e := <-inherited.Lost:
			oneLine(t, e.Error())
			if rank.ExitCode(e) == 0 {
				t.Errorf("%v ends with 0", e)
			}
		default:
		}
		inherited.Close()
	})
}

// What launchers leave in the environment, one variable a line.
func FuzzDetect(f *testing.F) {
	for _, text := range []string{
		"SLURM_PROCID=3\nSLURM_NTASKS=8\nSLURM_STEP_ID=0\nSLURM_JOB_ID=7\nSLURM_STEP_NODELIST=n[0-3]\nSLURM_LOCALID=1\nSLURM_NODEID=1\nSLURM_STEP_NUM_TASKS=8\nSLURM_STEP_TASKS_PER_NODE=2(x4)",
		"OMPI_COMM_WORLD_RANK=1\nOMPI_COMM_WORLD_SIZE=2\nPMIX_RANK=1\nPMIX_NAMESPACE=a@1",
		"PMI_RANK=0\nPMI_SIZE=4\nFLUX_TASK_RANK=1\nFLUX_JOB_SIZE=2\nRANK=1\nWORLD_SIZE=2\nMASTER_ADDR=n0\nMASTER_PORT=1",
		"JOB_COMPLETION_INDEX=3\nJSM_NAMESPACE_RANK=1\nJSM_NAMESPACE_SIZE=2\nPALS_RANKID=1\nPALS_APID=x",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		env := map[string]string{}
		for line := range strings.SplitSeq(text, "\n") {
			if name, value, ok := strings.Cut(line, "="); ok {
				env[name] = value
			}
		}
		l, err := Detect(func(name string) string { return env[name] })
		if err != nil {
			if errorKind(err) != rank.KindUsage {
				t.Errorf("%v is no usage error", err)
			}
			return
		}
		if l.Port < 0 || l.Port > 65535 || l.Procs > 0 && l.Proc >= l.Procs {
			t.Errorf("%+v", l)
		}
	})
}

// Addresses of the controller, and what the kernel says about this process.
func FuzzTexts(f *testing.F) {
	for _, s := range []string{"n0", "n0:7471", "[::1]:9", "fe80::1%eth0", "127.0.0.1", "1 (a) b) S 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 99 1", "0f8fad5b-d9cb-469f-a165-70867728950e\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parseBootID([]byte(text))
		parseStart([]byte(text))
		if expandCounts(text, 64) != nil && len(expandCounts(text, 64)) > 64 {
			t.Error("more counts than asked for")
		}
		a, err := parseController(text, 0)
		if err != nil {
			if errorKind(err) != rank.KindUsage {
				t.Errorf("%v is no usage error", err)
			}
			return
		}
		again, err := parseController(a.String(), 0)
		if err != nil || again != a {
			t.Errorf("%q was read as %+v, that as %+v (%v)", text, a, again, err)
		}
	})
}

// fuzzMember is a member of a job's gossip, one in the process.
var fuzzMember = sync.OnceValues(func() (*gossip, error) {
	net := memnet.New(memnet.Config{})
	h := net.AddHost("n0", netip.AddrFrom4([4]byte{10, 0, 0, 1}))
	cfg := Config{Network: h.Proc(), Controller: "n0", Port: 7471, JobKey: "fuzz", Procs: 2, Record: knockOf(0, 2).Record}
	cfg.Record.Nonce = [16]byte{1}
	ctl, err := openControl(&cfg)
	if err != nil {
		return nil, err
	}
	cfg.Record.Control = ctl.addrs()
	return startGossip(ctl, jobHash("fuzz"), &cfg.Record)
})

// What comes to a member of an open job as a packet, and as a stream: with the label of the job, as a replay has it.
func FuzzGossip(f *testing.F) {
	for _, s := range [][]byte{
		{0, 0x82, 0xa5, 'S', 'e', 'q', 'N', 'o', 1, 0xa4, 'N', 'o', 'd', 'e', 0xa1, 'x'},
		{3, 0x82, 0xab, 'I', 'n', 'c', 'a', 'r', 'n', 'a', 't', 'i', 'o', 'n', 1, 0xa4, 'N', 'o', 'd', 'e', 0xa1, 'x'},
		{6, 0x83, 0xa5, 'N', 'o', 'd', 'e', 's', 1, 0xac, 'U', 's', 'e', 'r', 'S', 't', 'a', 't', 'e', 'L', 'e', 'n', 2, 0xa4, 'J', 'o', 'i', 'n', 0xc3},
		{7, 2, 0, 1, 0, 1, 0, 0},
		{8, 'u'},
		{9, 1, 2},
		{10, 1, 2},
		{12, 1, 2, 3, 4, 8},
		{244, 3, 'a', 'b', 'c', 0},
		{},
	} {
		f.Add(s, false)
		f.Add(s, true)
	}
	f.Fuzz(func(t *testing.T, in []byte, stream bool) {
		g, err := fuzzMember()
		if err != nil {
			t.Fatal(err)
		}
		in = append(labelOf(g), in...)
		if stream {
			done := make(chan struct{})
			g.tr.streams <- &ending{script: scripted(in), done: done}
			<-done
			return
		}
		g.tr.packets <- &memberlist.Packet{Buf: bytes.Clone(in), From: scripted(nil).RemoteAddr(), Timestamp: time.Now()}
	})
}

// ending tells when the member has closed the stream.
type ending struct {
	*script
	once sync.Once
	done chan struct{}
}

func (c *ending) Close() error {
	c.once.Do(func() { close(c.done) })
	return nil
}

// labelOf is what the job's packets begin with.
func labelOf(g *gossip) []byte {
	label := jobHash("fuzz")
	text := hashText(label)
	return append([]byte{244, byte(len(text))}, text...)
}

// State that a member sends: records of others are taken, its own stays.
func FuzzGossipState(f *testing.F) {
	f.Add([]byte{0x90})
	f.Fuzz(func(t *testing.T, in []byte) {
		g := &gossip{entries: map[[16]byte]entry{}, changed: make(chan struct{}, 1), self: [16]byte{9}}
		gossipState{g}.MergeRemoteState(in, true)
		if len(g.entries) > maxEntries || len(g.entries) > len(in) {
			t.Fatalf("%d records out of %d bytes", len(g.entries), len(in))
		}
		back := &gossip{entries: map[[16]byte]entry{}, changed: make(chan struct{}, 1), self: [16]byte{9}}
		gossipState{back}.MergeRemoteState(gossipState{g}.LocalState(true), true)
		if len(g.entries) <= fullStateUpTo && len(back.entries) != len(g.entries) {
			t.Errorf("%d records became %d", len(g.entries), len(back.entries))
		}
		var s Stats
		g.log = &gossipLog{}
		g.stats(&s)
		if s.Members > len(g.entries) || s.Agents > s.Members {
			t.Errorf("%+v of %d records", s, len(g.entries))
		}
	})
}
