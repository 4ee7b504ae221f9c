package runner

import (
	"bytes"
	"fmt"

	"github.com/vmihailenco/msgpack/v5"

	"rankstorm/phases"
	"rankstorm/rank"
	"rankstorm/transport"
)

// exchangeStamp is when this process gave its addresses and when it had those of its peers, own clock.
type exchangeStamp struct{ begin, end int64 }

// published is one rank's endpoint address on its way through the tree.
type published struct {
	Rank rank.Rank `msgpack:"r"`
	Addr []byte    `msgpack:"a"`
}

// maxAddress bounds an endpoint address (transport.Address).
const maxAddress = 256

// ownAddresses encodes what the local ranks publish.
func (p *process) ownAddresses() []byte {
	p.exchange.begin = p.clock.Now()
	list := make([]published, 0, len(p.ranks))
	for _, rk := range p.ranks {
		if rk.addr != nil {
			list = append(list, published{rk.rank, rk.addr})
		}
	}
	b, err := msgpack.Marshal(list)
	if err != nil {
		p.note("addresses cannot be written: %v", err)
	}
	return b
}

// takeAddresses keeps what the root sent of everybody's addresses.
func (p *process) takeAddresses(body []byte) {
	list, err := decodeAddresses(body)
	if err != nil {
		p.note("addresses cannot be read: %v", err)
		return
	}
	for _, a := range list {
		p.addrs[a.Rank] = transport.Address(a.Addr)
	}
	p.exchange.end = p.clock.Now()
}

func decodeAddresses(body []byte) ([]published, error) {
	if len(body) == 0 {
		return nil, nil
	}
	dec := msgpack.NewDecoder(bytes.NewReader(body))
	n, err := dec.DecodeArrayLen()
	if err != nil {
		return nil, err
	}
	if n < 0 { // nil: nobody published anything
		return nil, nil
	}
	if n > len(body) { // an entry takes more than a byte: refuse before anything is allocated for it
		return nil, fmt.Errorf("%d addresses in %d bytes", n, len(body))
	}
	list := make([]published, n)
	for i := range list {
		if err := dec.Decode(&list[i]); err != nil {
			return nil, err
		}
	}
	for _, a := range list {
		if len(a.Addr) > maxAddress {
			return nil, fmt.Errorf("address of rank %d has %d bytes, at most %d are allowed", a.Rank, len(a.Addr), maxAddress)
		}
	}
	return list, nil
}

// merge is the machines' hook: addresses are put one after the other, summaries are reduced.
func (p *process) merge(t phases.Type, _ phases.Slot, bodies [][]byte) ([]byte, error) {
	if t == phases.Done {
		var all []published
		for _, b := range bodies {
			list, err := decodeAddresses(b)
			if err != nil {
				return nil, err
			}
			all = append(all, list...)
		}
		if all == nil {
			return nil, nil
		}
		return msgpack.Marshal(all)
	}
	return mergeSummaries(bodies)
}

// filter leaves a child's subtree only the addresses that its plans name, unless that is more than half of them: then
// looking costs more than sending.
func (p *process) filter(child rank.Proc, m phases.Message) phases.Message {
	if m.Type != phases.Collect || len(m.Body) == 0 {
		return m
	}
	need := make(map[rank.Rank]bool)
	half := p.table.Size() / 2
	for _, proc := range p.group.Subtree(child) {
		first, n := p.table.RanksOf(proc)
		for i := range n {
			for e := range p.topo.Edges(first + rank.Rank(i)) {
				need[e.To] = true
				if len(need) > half {
					return m
				}
			}
		}
	}
	list, err := decodeAddresses(m.Body)
	if err != nil {
		return m // told by takeAddresses
	}
	kept := list[:0]
	for _, a := range list {
		if need[a.Rank] {
			kept = append(kept, a)
		}
	}
	if b, err := msgpack.Marshal(kept); err == nil {
		m.Body = b
	}
	return m
}
