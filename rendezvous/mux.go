package rendezvous

import (
	"errors"
	"net"
	"sync"
	"time"
)

// First bytes of a stream to a process's own port: they say what it is for.
const (
	kindKnock  = 'K'
	kindGossip = 'G'
	kindLink   = 'C'
)

const (
	firstByteTimeout = 5 * time.Second
	helloTimeout     = 10 * time.Second // of a control link, after the first byte; its parent may be short of time
	maxHalfOpen      = 512              // streams that have not said what they are
	maxGreeting      = 1024             // knocks whose handshake is under way: a whole job may knock at once
)

// mux accepts streams and hands each to the handler of its first byte. What
// says nothing in time, or something unknown, is closed without a word. At
// most maxHalfOpen streams may be undecided: the oldest has to go when one
// more comes, so that mute connections cannot keep the others out.
type mux struct {
	mu        sync.Mutex
	handlers  map[byte]func(net.Conn)
	listeners map[net.Listener]struct{}
	halfOpen  unproven    // said nothing yet, or are control links without a hello
	greeting  unproven    // knocks that have not shown yet what they speak, or are in a handshake
	scarce    func(error) // told when a stream cannot be taken for want of descriptors or memory; may be nil
	closed    bool
	wg        sync.WaitGroup
}

// unproven is a bounded set of streams that have to prove themselves. The oldest
// has to go when one more comes, so that mute ones cannot keep others out.
type unproven struct {
	limit int
	since map[net.Conn]uint64 // with the number of its arrival
	last  uint64
}

// add takes a stream and gives back the one that has to go for it, nil if none.
func (c *unproven) add(conn net.Conn) (pushedOut net.Conn) {
	if len(c.since) >= c.limit {
		for other, number := range c.since {
			if pushedOut == nil || number < c.since[pushedOut] {
				pushedOut = other
			}
		}
		delete(c.since, pushedOut)
	}
	c.last++
	c.since[conn] = c.last
	return pushedOut
}

// remove takes a stream out; false: it was pushed out before.
func (c *unproven) remove(conn net.Conn) bool {
	_, ok := c.since[conn]
	delete(c.since, conn)
	return ok
}

// closeAll closes and forgets all streams.
func (c *unproven) closeAll() {
	for conn := range c.since {
		conn.Close()
	}
	clear(c.since)
}

func newMux() *mux {
	return &mux{
		handlers:  map[byte]func(net.Conn){},
		listeners: map[net.Listener]struct{}{},
		halfOpen:  unproven{limit: maxHalfOpen, since: map[net.Conn]uint64{}},
		greeting:  unproven{limit: maxGreeting, since: map[net.Conn]uint64{}},
	}
}

// ports that are listened on.
func (m *mux) ports() (ports []uint16) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for ln := range m.listeners {
		ports = append(ports, addrPortOf(ln.Addr()).Port())
	}
	return ports
}

// handle sets the handler of a first byte, in place of the one before. It runs
// in a goroutine of the stream, which it owns.
func (m *mux) handle(kind byte, f func(net.Conn)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.handlers[kind] = f
}

// onScarce sets who is told of a want of descriptors or memory; nil: nobody.
func (m *mux) onScarce(f func(error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.scarce = f
}

// tellScarce passes on what another call than accept met.
func (m *mux) tellScarce(err error) {
	m.mu.Lock()
	f := m.scarce
	m.mu.Unlock()
	if f != nil && isScarce(err) {
		f(err)
	}
}

// serve accepts on ln until ln or the mux is closed, in the background.
func (m *mux) serve(ln net.Listener) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		ln.Close()
		return
	}
	m.listeners[ln] = struct{}{}
	m.wg.Add(1)
	go m.accept(ln)
}

func (m *mux) accept(ln net.Listener) {
	defer m.wg.Done()
	pause := time.Duration(0)
	for {
		conn, err := ln.Accept()
		if err == nil {
			pause = 0
			m.admit(conn)
			continue
		}
		m.mu.Lock()
		over, scarce := m.closed, m.scarce
		if !over {
			if ne, ok := errors.AsType[net.Error](err); !ok || !isPassing(ne) {
				delete(m.listeners, ln)
				over = true
			}
		}
		m.mu.Unlock()
		if over {
			ln.Close()
			return
		}
		// Out of descriptors or memory: those come back, the listener stays.
		if scarce != nil && isScarce(err) {
			scarce(err)
		}
		pause = min(max(2*pause, 5*time.Millisecond), time.Second)
		time.Sleep(pause)
	}
}

// admit starts the goroutine that waits for the first byte.
func (m *mux) admit(conn net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		conn.Close()
		return
	}
	if oldest := m.halfOpen.add(conn); oldest != nil {
		oldest.Close()
	}
	m.wg.Add(1)
	go m.decide(conn)
}

func (m *mux) decide(conn net.Conn) {
	defer m.wg.Done()
	var first [1]byte
	conn.SetReadDeadline(time.Now().Add(firstByteTimeout))
	_, err := conn.Read(first[:])
	m.mu.Lock()
	f := m.handlers[first[0]]
	if err != nil || f == nil || m.closed {
		m.halfOpen.remove(conn)
		m.mu.Unlock()
		conn.Close()
		return
	}
	var oldest net.Conn
	switch first[0] {
	case kindLink: // a control link stays undecided until its hello
	case kindKnock:
		if m.halfOpen.remove(conn) {
			oldest = m.greeting.add(conn)
		}
	default:
		m.halfOpen.remove(conn)
	}
	m.mu.Unlock()
	if oldest != nil {
		oldest.Close()
	}
	conn.SetReadDeadline(time.Time{})
	f(conn)
}

// settle ends the half-open state of a stream; false: it was pushed out.
func (m *mux) settle(conn net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.halfOpen.remove(conn) && !m.closed
}

// greeted ends the greeting of a knock; false: it was pushed out.
func (m *mux) greeted(conn net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.greeting.remove(conn) && !m.closed
}

// close ends all listeners and undecided streams and waits for the goroutines.
// Handlers are waited for: they must end when their own side is closed.
func (m *mux) close() {
	m.mu.Lock()
	m.closed = true
	for ln := range m.listeners {
		ln.Close()
	}
	m.halfOpen.closeAll()
	m.greeting.closeAll()
	m.mu.Unlock()
	m.wg.Wait()
}

// isPassing says that accept may work again later (EMFILE, ECONNABORTED …).
func isPassing(err net.Error) bool {
	return err.Temporary() || err.Timeout() //nolint:staticcheck // for accept, Temporary is still the one thing that tells
}
