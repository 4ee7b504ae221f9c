package rendezvous

import (
	"bufio"
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"

	"rankstorm/rank"
)

// Above Config.AgentsAbove processes only some gossip: one agent per host and
// up to ProcsPerAgent processes. Who binds the host's socket is the agent; the
// others hand it their record and stay connected, so that both see the other's
// end. An agent that is full sends the next process on to the next socket.

// Frame types on the host socket. Bodies are msgpack.
const (
	frameSpeakFor = 0x60 + iota // process → agent: entry
	frameSpoken                 // agent → process: your record travels
	frameFull                   // agent → process: ask the next agent
)

const (
	agentTimeout   = time.Second     // for the answer of an agent, and for a record
	agentHandshake = 3 * time.Second // of a job with a secret, before that
)

// hostSocketName names the socket of the i-th agent of a job on its host.
func hostSocketName(job [32]byte, i int) string {
	name := "rankstorm/" + hashText(job)
	if i > 0 {
		name += "/" + strconv.Itoa(i)
	}
	return name
}

// findAgent gets this process's record gossiped: over an agent of the host, or,
// if it becomes one or none is to be trusted, as a member itself. It returns
// when it is a member or ctx ends; while an agent speaks for it, it watches
// over the agent.
func (j *joiner) findAgent(ctx context.Context) error {
	again := newBackoff(2*time.Millisecond, 200*time.Millisecond)
	for seq := uint32(1); ; seq++ {
		spoken, err := j.askAgents(ctx, seq)
		if err != nil || !spoken || ctx.Err() != nil || j.settled.Load() {
			return err
		}
		if again.wait(ctx) != nil { // the agent is gone: somebody else has to take over
			return nil
		}
	}
}

// askAgents goes through the host's agents. spoken: one took the record and has
// ended since.
func (j *joiner) askAgents(ctx context.Context, seq uint32) (spoken bool, err error) {
	for i := 0; ; i++ {
		ln, conn, err := j.cfg.Network.HostSocket(ctx, hostSocketName(j.job, i))
		switch {
		case ctx.Err() != nil:
			if ln != nil {
				ln.Close()
			}
			if conn != nil {
				conn.Close()
			}
			return false, nil
		case err != nil:
			return false, j.beMember() // no host sockets here, or somebody else's
		case ln != nil:
			if err := j.beMember(); err != nil {
				ln.Close()
				return false, err
			}
			j.serveAgent(ctx, ln)
			return false, nil
		}
		switch answer := j.askAgent(ctx, conn, seq); answer {
		case frameSpoken:
			return true, nil
		case frameFull:
		default:
			if ctx.Err() != nil {
				return false, nil
			}
			return false, j.beMember() // mute or foreign
		}
	}
}

// askAgent hands the record over; when it was taken, it waits for the end of
// the agent or of ctx.
func (j *joiner) askAgent(ctx context.Context, socket net.Conn, seq uint32) (answer byte) {
	defer socket.Close()
	defer context.AfterFunc(ctx, func() { socket.Close() })()
	socket.SetDeadline(time.Now().Add(agentHandshake))
	conn, err := j.ctl.wrapped(socket, true)
	if err != nil {
		return 0
	}
	conn.SetDeadline(time.Now().Add(agentTimeout))
	if writeMessage(conn, frameSpeakFor, entry{Seq: seq, Record: j.cfg.Record}) != nil {
		return 0
	}
	r := bufio.NewReaderSize(conn, 64)
	answer, _, err = readFrame(r, 64)
	if err != nil {
		return 0
	}
	if answer == frameSpoken {
		conn.SetDeadline(time.Time{})
		var more [1]byte
		_, _ = conn.Read(more[:]) // nothing more is said: this is its end
	}
	return answer
}

// serveAgent speaks for the other processes of the host until ctx ends.
func (j *joiner) serveAgent(ctx context.Context, ln net.Listener) {
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	defer ln.Close()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		spoke = 1 // itself
	)
	defer wg.Wait()
	for {
		socket, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) || pause(ctx, 10*time.Millisecond) != nil {
				return
			}
			continue
		}
		wg.Go(func() {
			defer socket.Close()
			defer context.AfterFunc(ctx, func() { socket.Close() })()
			socket.SetDeadline(time.Now().Add(agentHandshake))
			conn, err := j.ctl.wrapped(socket, false)
			if err != nil {
				return
			}
			conn.SetDeadline(time.Now().Add(agentTimeout))
			r := bufio.NewReaderSize(conn, 4096)
			e, err := readEntry(r)
			if err != nil {
				return
			}
			mu.Lock()
			full := spoke >= j.cfg.ProcsPerAgent
			if !full {
				spoke++
			}
			mu.Unlock()
			if full {
				_ = writeFrame(conn, frameFull, nil) // if it is gone it needs no answer
				return
			}
			defer func() {
				mu.Lock()
				spoke--
				mu.Unlock()
			}()
			j.gossip().speakFor(e)
			if writeFrame(conn, frameSpoken, nil) == nil {
				conn.SetDeadline(time.Time{})
				_, _ = r.ReadByte() // the process says nothing more: this is its end
			}
		})
	}
}

func readEntry(r *bufio.Reader) (e entry, err error) {
	kind, body, err := readFrame(r, maxKnock)
	if err != nil {
		return entry{}, err
	}
	if kind != frameSpeakFor {
		return entry{}, rank.Errorf(rank.KindRejected, "frame type %d on the host socket", kind)
	}
	if err := decode(body, &e); err != nil {
		return entry{}, err
	}
	return e, checkRecord(&e.Record)
}
