package rendezvous

import (
	"bytes"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"rankstorm/rank"
	"rankstorm/rendezvous/memnet"
	"rankstorm/test/freeport"
)

// The derivation is part of the protocol: another program with the same secret
// and job key must come to the same keys. Computed apart with RFC 5869.
func TestKeysAreDerivedAsWritten(t *testing.T) {
	k, err := deriveKeys([]byte("correct horse battery staple"), jobHash("nightly"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{
		"gossip":       {k.gossip, "4f6331439fb0a6870da664e626db08ef056a70c94268aa54bb44a5abf279fba1"},
		"control seed": {k.control.Seed(), "27cd748e3ce6b2ac9b6149c8925b1d7113592087d4782b0bac9a73a52cc1828d"},
		"data":         {k.data, "ca6bb7aff27a0d978738d4822bc7a1a0aec8055265225995d463f845e203e0c6"},
		"public key":   {k.public, "324a58f4bdc7da2ca3e3c272859bca4fa429c932911a54274576d28b23ffb4d5"},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
	for _, other := range []struct{ secret, job string }{{"correct horse battery stapl", "nightly"}, {"correct horse battery staple", "daily"}} {
		o, err := deriveKeys([]byte(other.secret), jobHash(other.job))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(o.gossip, k.gossip) || bytes.Equal(o.data, k.data) || o.public.Equal(k.public) {
			t.Errorf("%v shares a key", other)
		}
	}
}

// protect gives a configuration a secret.
func protect(cfg Config, secret string) Config {
	cfg.Secret = []byte(secret)
	return cfg
}

func TestJoinWithSecret(t *testing.T) {
	for _, size := range []struct{ procs, hosts int }{{1, 1}, {2, 2}, {8, 3}, {17, 1}, {40, 4}} {
		t.Run(fmt.Sprintf("%d on %d", size.procs, size.hosts), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newJoinLab(t, size.hosts, memnet.Config{Seed: 3, Latency: 100 * time.Microsecond, Jitter: 200 * time.Microsecond, Loss: 0.02})
				cfgs := make([]Config, size.procs)
				for i := range cfgs {
					cfgs[i] = protect(l.config(i, size.procs), "s3cret")
				}
				groups := l.formed(l.start(t.Context(), cfgs, nil), size.procs)
				for _, g := range groups {
					if len(g.DataKey()) != 32 || !bytes.Equal(g.DataKey(), groups[0].DataKey()) {
						t.Errorf("process %d has data key of %d bytes", g.Self(), len(g.DataKey()))
					}
				}
				if l.noticed("open") {
					t.Errorf("a protected job is called open: %q", l.said())
				}
				closeTogether(groups)
				l.clean(cfgs)
			})
		})
	}
}

func TestOpenJobSaysSoOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newJoinLab(t, 2, memnet.Config{Latency: time.Millisecond})
		cfgs := []Config{l.config(0, 3), l.config(1, 3), l.config(2, 3)}
		groups := l.formed(l.start(t.Context(), cfgs, nil), 3)
		if groups[0].DataKey() != nil {
			t.Error("an open job has a data key")
		}
		closeTogether(groups)
		l.clean(cfgs)
		n := 0
		for _, text := range l.said() {
			if strings.Contains(text, "this job is open") {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d times said that the job is open: %q", n, l.said())
		}
	})
}

// Whoever has the wrong secret, one too many or none is refused by name, and
// the job forms without it.
func TestSecretMismatch(t *testing.T) {
	for _, c := range []struct {
		name       string
		job        string // secret of the job, "" none
		change     func(*Config)
		offender   []string // parts of the messages
		controller []string
	}{
		{"another secret", "one", func(c *Config) { c.Secret = []byte("two") }, []string{"has another secret than this process"}, []string{"refused n1 pid 1009", "secret is another one"}},
		{"no secret", "one", func(c *Config) { c.Secret = nil }, []string{"secret is not given here, given at the controller"}, []string{"refused n1 pid 1009", "secret is not given there, given here"}},
		{"a secret too many", "", func(c *Config) { c.Secret = []byte("two") }, []string{"secret is given here, not given at the controller"}, []string{"refused n1 pid 1009", "secret is given there, not given here"}},
		{"another job, no secret", "one", func(c *Config) { c.Secret, c.JobKey = nil, "other" }, []string{`job key is "other" here, "lab" at the controller`}, []string{"n1 pid 1009", `"other" there, "lab" here`}},
		{"another job, same secret", "one", func(c *Config) { c.JobKey = "other" }, []string{`job key is "other" here, "lab" at the controller`}, []string{"n1 pid 1009", `"other" there, "lab" here`}},
		{"another job, secret too many", "", func(c *Config) { c.Secret, c.JobKey = []byte("one"), "other" }, []string{`job key is "other" here, "lab" at the controller`}, []string{"n1 pid 1009", `"other" there, "lab" here`}},
		{"another setting, same secret", "one", func(c *Config) { c.Procs = 5 }, []string{"5 here", "4 at the controller"}, []string{"n1 pid 1009", "5 there", "4 here"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newJoinLab(t, 2, memnet.Config{Latency: time.Millisecond})
				cfgs := make([]Config, 4)
				for i := range cfgs {
					cfgs[i] = protect(l.config(i, 4), c.job)
				}
				results := l.start(t.Context(), cfgs, []time.Duration{0, 0, 10 * time.Second, 10 * time.Second})
				time.Sleep(time.Second)
				odd := protect(l.config(9, 4), c.job)
				c.change(&odd)
				began := time.Now()
				_, err := Join(t.Context(), odd)
				if errorKind(err) != rank.KindRefused || rank.ExitCode(err) != 3 {
					t.Fatalf("the offender got %v", err)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("refused after %v", took)
				}
				for _, part := range c.offender {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("offender's message %q lacks %q", err, part)
					}
				}
				time.Sleep(100 * time.Millisecond) // an alert is on its way
				if !l.noticed(c.controller...) {
					t.Errorf("no notice with %q among %q", c.controller, l.said())
				}
				for _, text := range append(l.said(), err.Error()) {
					if strings.Contains(text, "one\"") || strings.Contains(text, "two") {
						t.Errorf("%q tells a secret", text)
					}
				}
				groups := l.formed(results, 4)
				closeTogether(groups)
				l.clean(append(cfgs, odd))
			})
		})
	}
}

// A refused process is told once to the user, and a flood of them not at all.
func TestRefusalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newJoinLab(t, 2, memnet.Config{Latency: time.Millisecond})
		cfgs := []Config{protect(l.config(0, 2), "one"), protect(l.config(1, 2), "one")}
		results := l.start(t.Context(), cfgs, []time.Duration{0, 30 * time.Second})
		time.Sleep(time.Second)
		var odd []Config
		for i := range 3 * maxRefusals {
			o := l.config(1, 2)
			o.Record.PID = 5000 + i/2 // each of them twice
			odd = append(odd, o)
			if _, err := Join(t.Context(), o); errorKind(err) != rank.KindRefused {
				t.Fatalf("got %v", err)
			}
		}
		closeTogether(l.formed(results, 2))
		l.clean(append(cfgs, odd...))
		n := 0
		for _, text := range l.said() {
			if strings.HasPrefix(text, "refused ") || strings.HasPrefix(text, "more processes are refused") {
				n++
			}
		}
		if n != maxRefusals+1 {
			t.Errorf("%d lines about refused processes, want %d", n, maxRefusals+1)
		}
	})
}

// Half-open handshakes and other junk do not keep a job from forming.
func TestHalfOpenHandshakes(t *testing.T) {
	for _, bytes := range []string{"K", "K\x16", "K\x16\x03\x01\x02\x00\x01\x00", "K\x16\x03\x01\xff\xff", "K\x17junk", "C\x16\x03\x01\x02\x00\x01", "K\x00\x00\x00\x08\x01\x41abcdef"} {
		t.Run(fmt.Sprintf("%q", bytes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newJoinLab(t, 2, memnet.Config{Latency: time.Millisecond})
				cfgs := []Config{protect(l.config(0, 2), "one"), protect(l.config(1, 2), "one")}
				results := l.start(t.Context(), cfgs, []time.Duration{0, 2 * time.Second})
				time.Sleep(time.Second)
				stranger := l.hosts[1].Proc()
				var open []net.Conn
				for range maxGreeting + maxHalfOpen + 10 {
					c, err := stranger.Dial(t.Context(), netip.MustParseAddrPort("10.0.0.1:7471"))
					if err != nil {
						t.Fatal(err)
					}
					if _, err := c.Write([]byte(bytes)); err != nil {
						t.Fatal(err)
					}
					open = append(open, c)
				}
				groups := l.formed(results, 2)
				time.Sleep(time.Minute)
				for i, c := range open { // the controller has let go of all of them
					c.SetReadDeadline(time.Now().Add(time.Second))
					if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
						t.Fatalf("stream %d is still open", i)
					}
					c.Close()
				}
				closeTogether(groups)
				l.clean(cfgs)
			})
		})
	}
}

// A member with another key brings its record to nobody.
func TestForeignGossipIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newJoinLab(t, 2, memnet.Config{Latency: time.Millisecond})
		member := func(i int, secret string) (*control, *gossip) {
			cfg := l.config(i, 2)
			cfg.Secret = []byte(secret)
			cfg.Record.Nonce = [16]byte{byte(i + 1)}
			ctl, err := openControl(&cfg)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Record.Control = ctl.addrs()
			g, err := startGossip(ctl, jobHash("lab"), &cfg.Record)
			if err != nil {
				t.Fatal(err)
			}
			return ctl, g
		}
		a, ga := member(0, "one")
		ga.setSeeds(nil)
		heard := make(chan [16]byte, 16)
		ga.listen(func(nonces [][16]byte) {
			for _, n := range nonces {
				heard <- n
			}
		})
		<-heard // itself
		var ctls []*control
		var members []*gossip
		for i, secret := range []string{"two", "", "one"} {
			ctl, g := member(i+1, secret)
			g.setSeeds(a.addrs())
			ctls, members = append(ctls, ctl), append(members, g)
			time.Sleep(30 * time.Second)
		}
		if got := <-heard; got != [16]byte{4} {
			t.Errorf("heard of %x first, want the member with the same key", got)
		}
		if len(heard) != 0 {
			t.Errorf("%d foreign records came in", len(heard))
		}
		for _, g := range append(members, ga) {
			g.close()
		}
		for _, c := range append(ctls, a) {
			c.close()
		}
		time.Sleep(time.Minute)
	})
}

// Over real loopback sockets: the right secret joins, the wrong ones are told apart.
func TestSecretOverLoopback(t *testing.T) {
	defer goleak.VerifyNone(t)
	port := freeport.At(t, "127.0.0.1")
	config := func(i int, secret string) Config {
		rec := ThisProcess()
		rec.Host, rec.PID, rec.LauncherProc = "here", 100+i, i
		return Config{
			Controller: "127.0.0.1", Port: port, Procs: 2, K: 1, JobKey: "loopback", Secret: []byte(secret), Record: rec,
			BindAddrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
		}
	}
	results := make(chan joined, 2)
	begin := func(i int) {
		go func() {
			g, err := Join(t.Context(), config(i, "right"))
			results <- joined{i: i, group: g, err: err}
		}()
	}
	begin(0)
	for {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			c.Close()
			break
		}
		time.Sleep(time.Millisecond)
	}
	for secret, part := range map[string]string{"wrong": "another secret", "": "not given here, given at the controller"} {
		if _, err := Join(t.Context(), config(1, secret)); errorKind(err) != rank.KindRefused || !strings.Contains(err.Error(), part) {
			t.Errorf("secret %q: %v", secret, err)
		}
	}
	// A program with a certificate of its own gets no further than the handshake.
	foreign, err := deriveKeys([]byte("stranger"), jobHash("loopback"))
	if err != nil {
		t.Fatal(err)
	}
	conf := foreign.links.Clone()
	conf.VerifyConnection, conf.ServerName, conf.NextProtos = nil, hashText(jobHash("loopback")), []string{knockProtocol}
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	c.Write([]byte{kindKnock})
	stranger := tls.Client(c, conf)
	if err := stranger.Handshake(); err != nil {
		t.Fatal(err)
	}
	if _, err := stranger.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "remote error") {
		t.Errorf("a foreign certificate was taken: %v", err)
	}
	c.Close()
	begin(1)
	var groups []*Group
	for range 2 {
		r := <-results
		if r.err != nil {
			t.Fatal(r.err)
		}
		groups = append(groups, r.group)
	}
	closeTogether(groups)
}
