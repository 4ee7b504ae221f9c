package collect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"rankstorm/rank"
)

const (
	// MaxPorts bounds the ports that a document lists one by one; the sums are of all of them.
	MaxPorts = 4096

	maxPortCounts = 512 // names of one port
	maxPortName   = 64  // bytes of one name
)

// PortSum is by how much the counters of one port of a device grew since the
// summary before. One process of each machine reads them, for all that run there.
type PortSum struct {
	Proc   rank.Proc   `msgpack:"p"` // that read them
	Device string      `msgpack:"d"`
	Port   int32       `msgpack:"n"`
	Ranks  []rank.Rank `msgpack:"r"` // whose data goes through this port, ascending
	Counts []Count     `msgpack:"c"` // above 0, by name
}

// Count is a named counter.
type Count struct {
	Name  string `msgpack:"k"`
	Count int64  `msgpack:"v"`
}

func (p PortSum) compare(o PortSum) int {
	return cmp.Or(cmp.Compare(p.Proc, o.Proc), cmp.Compare(p.Device, o.Device), cmp.Compare(p.Port, o.Port))
}

// Growth is by how much counters grew between two readings, by name: only those
// that did. What counts less than before began anew; what was not there before
// is not counted.
func Growth(before, after map[string]int64) []Count {
	var out []Count
	for _, name := range slices.Sorted(maps.Keys(after)) {
		was, ok := before[name]
		if !ok {
			continue
		}
		if was > after[name] {
			was = 0
		}
		if n := after[name] - was; n > 0 {
			out = append(out, Count{name, n})
		}
	}
	return out
}

// validatePorts checks what a peer sent.
func validatePorts(list []PortSum) error {
	for i, p := range list {
		if i > 0 && list[i-1].compare(p) >= 0 {
			return fmt.Errorf("ports are not in order at process %d", p.Proc)
		}
		if p.Proc < 0 || p.Port < 0 || len(p.Device) > maxPortName || len(p.Counts) > maxPortCounts {
			return fmt.Errorf("port %d of %.20q at process %d", p.Port, p.Device, p.Proc)
		}
		for j, r := range p.Ranks {
			if r < 0 || j > 0 && p.Ranks[j-1] >= r {
				return fmt.Errorf("ranks of a port at process %d are not in order", p.Proc)
			}
		}
		for j, c := range p.Counts {
			if c.Count < 1 || c.Count > 1<<53 || len(c.Name) > maxPortName || j > 0 && p.Counts[j-1].Name >= c.Name {
				return fmt.Errorf("counter %.20q of process %d", c.Name, p.Proc)
			}
		}
	}
	return nil
}

// DeviceCountersDoc is what the devices' ports counted during the job, for all
// processes of their machines.
type DeviceCountersDoc struct {
	Ports   int64          `json:"ports"`  // that were read
	Phases  []PortPhaseDoc `json:"phases"` // sums over all ports
	List    []PortDoc      `json:"list"`   // by process, device and port, at most MaxPorts
	LeftOut int64          `json:"list_left_out"`
}

// PortPhaseDoc is by how much counters grew in a phase.
type PortPhaseDoc struct {
	Phase  string           `json:"phase"`
	Counts map[string]int64 `json:"counts"` // above 0
}

// PortDoc is one port.
type PortDoc struct {
	Proc   rank.Proc      `json:"proc"` // that read its counters
	Host   string         `json:"host"`
	Device string         `json:"device"`
	Port   int64          `json:"port"`
	Ranks  []rank.Rank    `json:"ranks"` // whose data goes through it
	Phases []PortPhaseDoc `json:"phases"`
}

// portKey names a port of the job.
type portKey struct {
	proc   rank.Proc
	device string
	port   int32
}

// portBuild adds up the ports of all slots.
type portBuild struct {
	order []string // phases, as they came
	total map[string]map[string]int64
	ports map[portKey]*portCounts
}

type portCounts struct {
	ranks  []rank.Rank
	phases map[string]map[string]int64
}

func (b *portBuild) add(s *Summary) {
	if len(s.Ports) == 0 {
		return
	}
	if b.total == nil {
		b.total, b.ports = map[string]map[string]int64{}, map[portKey]*portCounts{}
	}
	if !slices.Contains(b.order, s.Phase) {
		b.order = append(b.order, s.Phase)
	}
	for _, p := range s.Ports {
		key := portKey{p.Proc, p.Device, p.Port}
		one := b.ports[key]
		if one == nil {
			one = &portCounts{phases: map[string]map[string]int64{}}
			b.ports[key] = one
		}
		one.ranks = p.Ranks
		for _, c := range p.Counts {
			grow(one.phases, s.Phase, c)
			grow(b.total, s.Phase, c)
		}
	}
}

func grow(to map[string]map[string]int64, phase string, c Count) {
	if to[phase] == nil {
		to[phase] = map[string]int64{}
	}
	to[phase][c.Name] += c.Count
}

// finish is nil if nobody read any port.
func (b *portBuild) finish(hosts map[rank.Proc]string) *DeviceCountersDoc {
	if len(b.ports) == 0 {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(b.ports), func(x, y portKey) int {
		return PortSum{Proc: x.proc, Device: x.device, Port: x.port}.compare(PortSum{Proc: y.proc, Device: y.device, Port: y.port})
	})
	d := &DeviceCountersDoc{Ports: int64(len(keys)), Phases: b.inOrder(b.total), List: []PortDoc{}, LeftOut: int64(max(0, len(keys)-MaxPorts))}
	for _, k := range keys[:min(len(keys), MaxPorts)] {
		one := b.ports[k]
		d.List = append(d.List, PortDoc{
			Proc: k.proc, Host: hosts[k.proc], Device: k.device, Port: int64(k.port),
			Ranks: append([]rank.Rank{}, one.ranks...), Phases: b.inOrder(one.phases),
		})
	}
	return d
}

func (b *portBuild) inOrder(phases map[string]map[string]int64) []PortPhaseDoc {
	out := []PortPhaseDoc{}
	for _, phase := range b.order {
		if len(phases[phase]) > 0 {
			out = append(out, PortPhaseDoc{phase, phases[phase]})
		}
	}
	return out
}
