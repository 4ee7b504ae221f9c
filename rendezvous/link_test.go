package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// pair is a TCP stream over loopback.
func pair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if a, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

func TestOutboxKeepsOrderWhenTheSocketIsFull(t *testing.T) {
	defer goleak.VerifyNone(t)
	a, b := pair(t)
	o := newOutbox(a)
	var want bytes.Buffer
	block := make([]byte, 100_000)
	for i := range 200 { // far more than socket buffers hold
		for j := range block {
			block[j] = byte(i + j)
		}
		want.Write(block)
		if n, err := o.Write(block); n != len(block) || err != nil {
			t.Fatalf("write %d: %d bytes, %v", i, n, err)
		}
	}
	got := make([]byte, want.Len())
	if _, err := io.ReadFull(b, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Fatal("what arrived is not what was written")
	}
	if err := o.flush(10 * time.Second); err != nil {
		t.Fatal(err)
	}
	// Idle again: the next write goes out directly and in order.
	if _, err := o.Write([]byte("end")); err != nil {
		t.Fatal(err)
	}
	if o.idle != nil {
		t.Error("a short write to an empty socket was queued")
	}
	if _, err := io.ReadFull(b, got[:3]); err != nil || string(got[:3]) != "end" {
		t.Fatalf("%q, %v", got[:3], err)
	}
	o.Close()
	b.Close()
	if _, err := o.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
}

func TestOutboxIsBounded(t *testing.T) {
	defer goleak.VerifyNone(t)
	a, b := pair(t)
	defer b.Close()
	o := newOutbox(a)
	o.limit = 1 << 20
	block := make([]byte, 64<<10)
	var err error
	for n := 0; err == nil && n < 1<<30; n += len(block) {
		_, err = o.Write(block)
	}
	if !errors.Is(err, errBacklog) {
		t.Fatalf("error %v", err)
	}
	if _, err := o.Write(nil); !errors.Is(err, errBacklog) {
		t.Errorf("after the queue was full once: %v", err)
	}
	o.Close() // ends the sender, which waits for the peer
}

func TestOutboxTellsThatThePeerIsGone(t *testing.T) {
	defer goleak.VerifyNone(t)
	a, b := pair(t)
	o := newOutbox(a)
	b.Close()
	var err error
	for range 1000 {
		if _, err = o.Write([]byte("x")); err != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err == nil {
		t.Error("1000 writes to a closed peer went well")
	}
	o.Close()
}

func TestWriteDoesNotAllocate(t *testing.T) {
	a, b := pair(t)
	go io.Copy(io.Discard, b)
	o := newOutbox(a)
	defer o.Close()
	l := newLink(nil, 0, false, o, o, nil)
	body := make([]byte, 100)
	if n := testing.AllocsPerRun(1000, func() {
		if err := l.send(frameData, body); err != nil {
			t.Error(err)
		}
	}); n >= 1 { // a queued write may allocate, once in a while
		t.Errorf("%v allocations per message", n)
	}
}

// secured makes the wrap of the processes of a job with a secret.
func secured(t *testing.T, secret string) func(net.Conn, bool) (net.Conn, error) {
	t.Helper()
	k, err := deriveKeys([]byte(secret), jobHash("lab"))
	if err != nil {
		t.Fatal(err)
	}
	return k.wrap
}

func TestWrappedLinks(t *testing.T) {
	defer goleak.VerifyNone(t)
	const n = 6
	cs := open(t, n, func(_ int, cfg *Config) { cfg.TreeArity = 2 })
	wrap := secured(t, "one")
	for _, c := range cs {
		c.wrap = wrap
	}
	gs, errs := form(cs, testTable(t, n, cs))
	for p, err := range errs {
		if err != nil {
			t.Fatalf("process %d: %v", p, err)
		}
	}
	var wg sync.WaitGroup
	for _, g := range gs {
		wg.Go(func() {
			for range 50 {
				if sum, err := reduce(g); err != nil || sum != n*(n-1)/2 {
					t.Errorf("process %d: sum %d, error %v", g.Self(), sum, err)
					return
				}
			}
		})
	}
	wg.Wait()
	body := make([]byte, 4<<20) // more than a socket takes at once
	if err := gs[0].Broadcast(body); err != nil {
		t.Fatal(err)
	}
	if e := <-gs[2].Events(); e.Kind != FromParent || len(e.Payload) != len(body) {
		t.Errorf("event of kind %d with %d bytes, %v", e.Kind, len(e.Payload), e.Err)
	}
	closeGroups(gs)
	for _, g := range gs {
		for _, e := range drained(g) {
			if e.Kind == ChildLost || e.Kind == ParentLost {
				t.Errorf("process %d: %+v", g.Self(), e)
			}
		}
	}
}

func TestForeignKeyCannotSeal(t *testing.T) {
	defer goleak.VerifyNone(t)
	cs := open(t, 2, nil)
	cs[0].wrap, cs[1].wrap = secured(t, "one"), secured(t, "two")
	awaiting, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := cs[1].await(awaiting)
		done <- err
	}()
	if _, err := cs[0].seal(t.Context(), testTable(t, 2, cs)); err == nil {
		t.Error("sealed with a process that has another key")
	}
	stop()
	if err := <-done; err == nil {
		t.Error("took a table from a process with another key")
	}
	cs[0].close()
	cs[1].close()
}
