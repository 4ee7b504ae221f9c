package runner

import (
	"bytes"
	"fmt"
	"slices"
	"time"

	"github.com/vmihailenco/msgpack/v5"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/rendezvous"
)

const (
	askerPatience = 3 * time.Second // that an orphan gets until this process knows whether it has lost the root, too
	keptBytes     = 32 << 20        // of own summaries of earlier slots, for a successor of the root
	keptRounds    = 1 << 20         // the same, as long as there are slots of rounds before the last one
	stallEcho     = 5 * time.Second // after a stop within which a loss may be what the others made of it
)

// asker is an orphan that asks this process to be its parent.
type asker struct {
	proc  rank.Proc
	below phases.ProcSet // itself and the living below it
	cause *rank.Error    // how its parent was lost
	told  *phases.Decision
	until int64 // own clock: answered by then
}

// kept is the own summary of one slot.
type kept struct {
	seq   int32
	round int32
	body  []byte
}

// search looks for the root after the parent was lost.
func (p *process) search(cause *rank.Error) {
	p.searching, p.searchFor = true, cause
	m := phases.Message{Type: phases.Lost, Seq: -1, Covers: p.member.Living(), Cause: cause}
	var err error
	if told := p.member.Told(); told != nil {
		m.Body, err = phases.EncodeMessage(phases.Message{Type: phases.Verdict, Seq: -1, Code: told.Code, Cause: told.Cause})
	}
	var word []byte
	if err == nil {
		word, err = phases.EncodeMessage(m)
	}
	if err != nil {
		p.step(phases.MemberInput{Kind: phases.MGivenUp, Cause: rank.AsError(err, rank.KindInternal)})
		return
	}
	p.group.Reattach(word)
}

// found takes the outcome of the search.
func (p *process) found(ev rendezvous.Event) {
	p.searching = false
	switch ev.Kind {
	case rendezvous.Attached:
		p.orphaned = false
		p.step(phases.MemberInput{Kind: phases.MAttached, Proc: ev.Proc})
	case rendezvous.GivenUp:
		p.step(phases.MemberInput{Kind: phases.MGivenUp, Cause: rank.AsError(ev.Err, rank.KindLost)})
	case rendezvous.Successor:
		p.orphaned = false
		p.takeOver(phases.SetOf(ev.Procs...))
	}
	p.drain()
	p.answerAskers()
}

// takeOver makes this process the root of what is left of the job.
func (p *process) takeOver(gone phases.ProcSet) {
	p.root = &rootShell{p: p, doc: collect.NewDocument(p.meta()), display: newDisplay(p), successor: true}
	p.root.m = phases.NewRoot(phases.RootConfig{
		Self: p.self, Procs: len(p.table.Procs), Schedule: p.sched, Limits: p.spec.Limits(), Began: p.startNS, Merge: p.merge, Describe: p.describe,
		Takeover: &phases.Takeover{Seq: p.member.Seq(), Below: p.member.Living(), Lost: gone, Cause: p.searchFor, Told: p.member.Told()},
	})
	p.root.losses.inherit(p, gone)
	if told := p.member.Told(); told != nil {
		if p.cfg.Verbose > 0 {
			p.say("%v; that was after the end of the job was decided, and exit code %d stands", p.searchFor, told.Code)
		}
	} else {
		p.note("process %d (%s) takes over from the lost root", p.self, p.table.Entry(p.self).Host)
	}
	p.step(phases.MemberInput{Kind: phases.MTakeRoot})
	p.queue = append(p.queue, func() { p.root.step(phases.Input{Kind: phases.InStart}) })
}

// asked takes an orphan's question.
func (p *process) asked(ev rendezvous.Event) {
	m, err := phases.DecodeMessage(ev.Payload)
	if err == nil && (m.Type != phases.Lost || !m.Covers.Has(ev.Proc) || m.Covers.Has(p.self)) {
		err = fmt.Errorf("a %s for %d processes", m.Type, m.Covers.Len())
	}
	var told *phases.Decision
	if err == nil && len(m.Body) > 0 {
		var v phases.Message
		if v, err = phases.DecodeMessage(m.Body); err == nil && v.Type != phases.Verdict {
			err = fmt.Errorf("a %s as the verdict", v.Type)
		}
		told = &phases.Decision{Code: v.Code, Cause: v.Cause}
	}
	if err != nil {
		p.group.TurnAway(ev.Proc, rank.Errorf(rank.KindRejected, "asked for a parent in a way that cannot be read: %w", err))
		return
	}
	p.askers = append(slices.DeleteFunc(p.askers, func(a asker) bool { return a.proc == ev.Proc }),
		asker{ev.Proc, m.Covers, m.Cause, told, p.clock.Now() + int64(askerPatience)})
	p.answerAskers()
}

// answerAskers adopts orphans if this is the root, and turns them away if it is not going to be.
func (p *process) answerAskers() {
	p.askers = slices.DeleteFunc(p.askers, func(a asker) bool {
		switch {
		case p.root != nil && !p.root.finished && p.root.m.Admits(a.proc):
			if p.group.Adopt(a.proc) != nil {
				return true // gone again
			}
			p.adopted++
			msg := phases.Message{Covers: a.below}
			p.step(phases.MemberInput{Kind: phases.MChildJoined, Proc: a.proc, Msg: msg})
			p.queue = append(p.queue, func() {
				p.root.step(phases.Input{Kind: phases.InAttached, Proc: a.proc, Msg: msg, Cause: a.cause, Told: a.told})
			})
		case p.root != nil:
			e := rank.Errorf(rank.KindLost, "this process was given up: the job went on without it")
			e.Proc = a.proc
			p.group.TurnAway(a.proc, e)
		case p.searching || p.clock.Now() < a.until:
			return false
		default:
			e := rank.Errorf(rank.KindLost, "this process has no way to the root, but process %d, which it reaches, has", p.self)
			e.Proc = a.proc
			p.group.TurnAway(a.proc, e)
		}
		return true
	})
}

// stalled says that nobody ran this process for so long that the others have given it up. They have gone on without it,
// so it must not report anything.
func (p *process) stalled() bool {
	gap, _ := p.group.Stood()
	if gap <= p.spec.LivenessTimeout {
		return false
	}
	p.outOfJob(gap)
	return true
}

// echo says that the loss of a link may be what the others made of a stop of this process, the root.
func (p *process) echo() (stood time.Duration, yes bool) {
	gap, ended := p.group.Stood()
	return gap, p.root != nil && gap > 0 && p.clock.Now()-ended < int64(stallEcho)
}

// outOfJob ends this process, which stood still, without a report.
func (p *process) outOfJob(stood time.Duration) {
	if told := p.member.Told(); told != nil { // nothing is left to go on without it
		p.exit = &exitState{code: told.Code, cause: told.Cause}
		return
	}
	host, ranks := p.describe(p.self)
	e := &rank.Error{Kind: rank.KindLost, Proc: p.self, Ranks: ranks, Host: host, Phase: string(p.slot.Phase), Peer: rank.None}
	e.Text = fmt.Sprintf("this process stood still for %v, longer than --liveness-timeout %v: to the others it is lost",
		stood.Round(time.Millisecond), p.spec.LivenessTimeout)
	p.group.Abandon()
	p.root, p.exit = nil, &exitState{code: 1, cause: e}
	p.queue = nil
}

// lose tells the workers who is gone.
func (p *process) lose(procs phases.ProcSet) {
	all := procs.Clone()
	if before := p.gone.Load(); before != nil {
		all.Union(*before)
	}
	p.gone.Store(&all)
	if p.stage != workRunning {
		return
	}
	for _, rk := range p.ranks {
		for _, w := range rk.workers {
			w.tw.Wake()
		}
	}
}

// keep remembers an own summary. The oldest go when there are too many; rounds without end cost little.
func (p *process) keep(s phases.Slot, body []byte) {
	p.kept = append(p.kept, kept{s.Seq, s.Round, body})
	p.keptBytes += len(body)
	for len(p.kept) > 1 && (p.keptBytes > keptBytes || p.keptBytes > keptRounds && p.kept[0].round+1 < s.Round) {
		p.keptBytes -= len(p.kept[0].body)
		p.kept = p.kept[1:]
	}
}

// allKept is what a successor gets: the summaries of all slots at hand.
func (p *process) allKept() [][]byte {
	list := make([][]byte, len(p.kept))
	for i, k := range p.kept {
		list[i] = k.body
	}
	return list
}

// packSummaries puts the summaries of several slots, or of one, into one body.
func packSummaries(list [][]byte) ([]byte, error) {
	var b bytes.Buffer
	enc := msgpack.NewEncoder(&b)
	if err := enc.EncodeArrayLen(len(list)); err != nil {
		return nil, err
	}
	for _, s := range list {
		if err := enc.EncodeBytes(s); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// unpackSummaries reads what packSummaries wrote; the parts lie in b.
func unpackSummaries(b []byte) ([][]byte, error) {
	if len(b) == 0 {
		return nil, nil
	}
	r := bytes.NewReader(b)
	dec := msgpack.NewDecoder(r)
	n, err := dec.DecodeArrayLen()
	if err != nil {
		return nil, err
	}
	if n < 0 || n > len(b) { // each takes more than a byte
		return nil, fmt.Errorf("%d summaries in %d bytes", n, len(b))
	}
	list := make([][]byte, n)
	for i := range list {
		size, err := dec.DecodeBytesLen()
		if err != nil {
			return nil, err
		}
		if size < 0 || size > r.Len() {
			return nil, fmt.Errorf("summary of %d bytes, %d are left", size, r.Len())
		}
		at := len(b) - r.Len()
		list[i] = b[at : at+size : at+size]
		if _, err := r.Seek(int64(size), 1); err != nil {
			return nil, err
		}
	}
	if r.Len() > 0 {
		return nil, fmt.Errorf("%d bytes left over", r.Len())
	}
	return list, nil
}

// mergeSummaries reduces encoded summaries, slot by slot.
func mergeSummaries(bodies [][]byte) ([]byte, error) {
	slots := map[int32]*collect.Summary{}
	var order []int32
	for _, b := range bodies {
		list, err := unpackSummaries(b)
		if err != nil {
			return nil, err
		}
		for _, one := range list {
			s, err := collect.DecodeSummary(one)
			if err != nil {
				return nil, err
			}
			whole, ok := slots[s.Seq]
			if !ok {
				slots[s.Seq] = s
				order = append(order, s.Seq)
				continue
			}
			if err := collect.Merge(whole, s); err != nil {
				return nil, err
			}
		}
	}
	if len(order) == 0 {
		return nil, nil
	}
	slices.Sort(order)
	list := make([][]byte, len(order))
	for i, seq := range order {
		var err error
		if list[i], err = collect.EncodeSummary(slots[seq]); err != nil {
			return nil, err
		}
	}
	return packSummaries(list)
}
