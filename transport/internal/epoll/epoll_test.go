package epoll

import (
	"errors"
	"math"
	"testing"

	"golang.org/x/sys/unix"
)

func pair(t *testing.T) (a, b int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	return fds[0], fds[1]
}

func newSet(t *testing.T) *Set {
	t.Helper()
	s, err := New(8)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestEventsCarrySlotAndGen(t *testing.T) {
	s := newSet(t)
	a, b := pair(t)
	if err := s.Add(a, 7, 3, In|Edge); err != nil {
		t.Fatal(err)
	}
	ev := make([]Event, 8)
	if n, woken, err := s.Wait(0, ev); n != 0 || woken || err != nil {
		t.Fatalf("an idle set gave %d events, woken %v, %v", n, woken, err)
	}
	if _, err := unix.Write(b, []byte{1}); err != nil {
		t.Fatal(err)
	}
	n, woken, err := s.Wait(math.MaxInt64, ev)
	if n != 1 || woken || err != nil || ev[0].Slot != 7 || ev[0].Gen != 3 || ev[0].Bits&In == 0 {
		t.Fatalf("got %d %v %v %+v, want one In of slot 7 gen 3", n, woken, err, ev[0])
	}
	if n, _, _ := s.Wait(0, ev); n != 0 {
		t.Error("an edge was reported twice")
	}
	if err := s.Remove(a); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(b, []byte{1}); err != nil {
		t.Fatal(err)
	}
	if n, _, _ := s.Wait(0, ev); n != 0 {
		t.Error("a removed descriptor still reports")
	}
}

func TestWakeEndsTheNextWaitOnce(t *testing.T) {
	s := newSet(t)
	ev := make([]Event, 8)
	s.Wake()
	s.Wake()
	if n, woken, err := s.Wait(math.MaxInt64, ev); n != 0 || !woken || err != nil {
		t.Fatalf("got %d %v %v, want woken only", n, woken, err)
	}
	if _, woken, _ := s.Wait(0, ev); woken {
		t.Error("two wakes before one wait woke two waits")
	}
}

func TestTimedWaitReturns(t *testing.T) {
	for _, old := range []bool{false, true} {
		s := newSet(t)
		s.noNS = old
		if n, woken, err := s.Wait(100_000, make([]Event, 8)); n != 0 || woken || err != nil {
			t.Errorf("without epoll_pwait2 %v: got %d %v %v", old, n, woken, err)
		}
	}
}

func TestWaitDoesNotAllocate(t *testing.T) {
	s := newSet(t)
	a, _ := pair(t)
	ev := make([]Event, 8)
	if n := testing.AllocsPerRun(50, func() {
		_ = s.Add(a, 1, 1, Out|Edge)
		_, _, _ = s.Wait(1000, ev)
		_, _, _ = s.Wait(0, ev)
		_ = s.Remove(a)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// What several sets wait for wakes one of them: the kernel lets nobody modify such a registration. What they leave is
// reported again.
func TestSharedDescriptors(t *testing.T) {
	for _, sets := range []int{1, 2} {
		s := newSet(t)
		a, b := pair(t)
		if err := s.AddShared(a, 4, sets); err != nil {
			t.Fatal(err)
		}
		if err := s.Modify(a, 4, 0, In); errors.Is(err, unix.EINVAL) != (sets > 1) {
			t.Errorf("%d sets: modified, %v", sets, err)
		}
		if _, err := unix.Write(b, []byte{1}); err != nil {
			t.Fatal(err)
		}
		ev := make([]Event, 8)
		for range 2 {
			if n, _, err := s.Wait(0, ev); n != 1 || err != nil || ev[0].Slot != 4 {
				t.Errorf("%d sets: %d events, first %+v, %v", sets, n, ev[0], err)
			}
		}
	}
}
