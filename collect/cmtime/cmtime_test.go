package cmtime

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rankstorm/collect"
	"rankstorm/transport"
)

var rewrite = flag.Bool("rewrite", false, "write the golden files anew; measured.txt is cmtime's own output and stays")

// golden compares with testdata/name, byte for byte.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *rewrite && name != "measured.txt" {
		if err := os.WriteFile(filepath.Join("testdata", name), []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant:\n%s", name, got, want)
	}
}

func print(t *testing.T, table *Table) string {
	t.Helper()
	var b strings.Builder
	if err := table.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestTableAsCmtimePrintsIt: the figures of a run of cmtime itself, whose output
// is the golden file.
func TestTableAsCmtimePrintsIt(t *testing.T) {
	table := Table{QPs: true, Conns: 10, Threads: 1, Rows: [rowCount]Row{
		fullConnect: {Total: 44343, Max: 43618, Min: 19206}, createID: {Total: 366, Sum: 352, Max: 142, Min: 5},
		bindAddr: {Total: 935, Sum: 922, Max: 550, Min: 27}, resolveAddr: {Total: 1560, Sum: 1037, Max: 299, Min: 57},
		resolveRoute: {Total: 1131, Sum: 847, Max: 237, Min: 53}, createQP: {Total: 6577, Sum: 3001, Max: 938, Min: 132},
		initQPAttr: {Sum: 93, Max: 49, Min: 2}, initQP: {Total: 477, Sum: 286, Max: 216, Min: 5},
		rtrQPAttr: {Sum: 383, Max: 133, Min: 18}, rtrQP: {Sum: 1670, Max: 415, Min: 126},
		rtsQPAttr: {Sum: 118, Max: 16, Min: 9}, rtsQP: {Sum: 172, Max: 25, Min: 13},
		cmConnect: {Total: 29675, Sum: 31119, Max: 4542, Min: 2474}, establish: {Sum: 4304, Max: 932, Min: 51},
		disconnect: {Total: 5642, Sum: 247, Max: 101, Min: 7}, destroyID: {Total: 284, Sum: 269, Max: 111, Min: 9},
		destroyQP: {Total: 3101, Sum: 3072, Max: 625, Min: 131},
	}}
	golden(t, "measured.txt", print(t, &table))
}

// TestBigFigures: columns are at least ten wide and grow; nothing wraps at 32 bits.
func TestBigFigures(t *testing.T) {
	table := Table{Conns: 4_000_000_000, Threads: 1024}
	table.Rows[cmConnect] = Row{Total: 103_000_000, Sum: 4_276_743_224_000, Max: 103_000_000, Min: 1}
	golden(t, "big.txt", print(t, &table))
}

// every step of the simulated or a real provider, initiator's side and target's.
var (
	initiatorSteps = []transport.Step{
		transport.StepCreateID, transport.StepBindAddr, transport.StepResolveAddr, transport.StepResolveRoute, transport.StepCreateQP,
		transport.StepInitQPAttr, transport.StepInitQP, transport.StepConnect, transport.StepRTRAttr, transport.StepRTR, transport.StepRTSAttr,
		transport.StepRTS, transport.StepEstablish, transport.StepFullConnect, transport.StepDisconnect, transport.StepDestroyQP, transport.StepDestroyID,
	}
	targetSteps = []transport.Step{
		transport.StepAccept, transport.StepAcceptCreateQP, transport.StepAcceptInitQPAttr, transport.StepAcceptInitQP,
		transport.StepAcceptRTRAttr, transport.StepAcceptRTR, transport.StepAcceptRTSAttr, transport.StepAcceptRTS,
		transport.StepPeerDisconnect, transport.StepDestroyQP, transport.StepDestroyID,
	}
)

// measured makes a row of four connections; every step has figures of its own, step i
// begins at i ms.
func measured(name, side string, i int) collect.StepSum {
	base := int64(1000 * (i + 1)) // ns
	first := int64(i) * 1_000_000
	return collect.StepSum{
		Step: name, Side: side, FirstBegin: first, LastEnd: first + 3*base + 999,
		Total: collect.Moments{
			Count: 4, SumNS: 4*base + 3, MinNS: base, MaxNS: base + 2000, MinEdge: collect.EdgeConn{From: 1, To: 0}, MaxEdge: collect.EdgeConn{From: 2, To: 0, Conn: 1},
		},
	}
}

// slots are the figures of a whole pass.
func slots(extra ...collect.StepSum) *collect.Summary {
	s := &collect.Summary{}
	for i, st := range initiatorSteps {
		s.Steps = append(s.Steps, measured(st.String(), collect.SideInitiator, i))
	}
	for i, st := range targetSteps {
		s.Steps = append(s.Steps, measured(st.String(), collect.SideTarget, 20+i))
	}
	s.Steps = append(s.Steps, measured(collect.FromCreate, collect.SideInitiator, 2), measured("listen", collect.SideEndpoint, 41))
	s.Steps = append(s.Steps, extra...)
	return s
}

// TestCellsOfEachRole: which cells are filled, from which step, for each role with
// and without -S; and all together with the columns that are ours.
func TestCellsOfEachRole(t *testing.T) {
	name := func(e collect.EdgeConn) string { return fmt.Sprintf("%d>%d", e.From, e.To) }
	for _, c := range []struct {
		file string
		role Role
		kind Kind
		who  func(collect.EdgeConn) string
	}{
		{"client.txt", Client, QPs, nil},
		{"server.txt", Server, QPs, nil},
		{"client_sockets.txt", Client, Sockets, nil},
		{"server_sockets.txt", Server, Sockets, nil},
		{"all_clients.txt", Client, QPs, name},
		{"all_servers.txt", Server, QPs, name},
	} {
		p := NewPass(c.role, c.kind)
		p.Add(slots(many(t)))
		golden(t, c.file, print(t, p.Table(c.kind == QPs, 4, 1, c.who)))
	}
}

// many are 1,000 samples of the initiators' resolve addr, of 1 to 1,000 µs.
func many(t *testing.T) collect.StepSum {
	t.Helper()
	s := measured("resolve addr", collect.SideInitiator, 0)
	h := collect.NewHistogram()
	for ns := int64(1000); ns <= 1_000_000; ns += 1000 {
		if err := h.Record(ns); err != nil {
			t.Fatal(err)
		}
	}
	s.Hist = h.Buckets()
	s.Total.Count, s.Total.SumNS, s.Total.MinNS, s.Total.MaxNS = 1000, 500_500_000, 1000, 1_000_000
	return s
}

// TestPlayedRowsWin: what was slept in place of a queue pair step is that row, also
// if the provider has a step of the name.
func TestPlayedRowsWin(t *testing.T) {
	p := NewPass(Client, Simulated)
	p.Add(slots(measured(collect.MimicName("create qp"), collect.SideInitiator, 99)))
	if got := p.Table(false, 4, 1, nil).Rows[createQP]; got.Min != 100 {
		t.Errorf("create qp %+v, want the slept 100 µs", got)
	}
}

// TestNothingMeasured: a pass without a figure is a table of zeros.
func TestNothingMeasured(t *testing.T) {
	for _, r := range []Role{Client, Server} {
		p := NewPass(r, QPs)
		p.Add(&collect.Summary{})
		if got := p.Table(true, 4, 1, nil); got.Rows != [rowCount]Row{} {
			t.Errorf("%v: %+v", r, got.Rows)
		}
	}
}

// TestSumsAreOverAllConnections: us/conn divides by all connections, also those of
// which a step was not recorded.
func TestSumsAreOverAllConnections(t *testing.T) {
	p := NewPass(Client, QPs)
	p.Add(&collect.Summary{Steps: []collect.StepSum{measured("bind addr", collect.SideInitiator, 9)}}) // 4 of 40
	lines := strings.Split(print(t, p.Table(true, 40, 1, nil)), "\n")
	if got, want := lines[5], "bind addr               0         30          1         40         12         10"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestStory: everything that an instance prints in a run, title by title.
func TestStory(t *testing.T) {
	var b strings.Builder
	for _, r := range []Role{Client, Server} {
		for k, conns := range []int64{WarmUp: 1, QPs: 100, Simulated: 100, NoQPs: 100, Sockets: 100} {
			kind := Kind(k)
			fmt.Fprintln(&b, Title(r, kind, conns, 250))
			for _, phase := range []string{"create", "bind", "listen", "publish", "resolve", "qp", "connect", "probe", "disconnect", "destroy"} {
				for _, l := range Lines(r, kind, phase, kind == WarmUp) {
					fmt.Fprintln(&b, l)
				}
			}
			if l := Results(r, kind); l != "" {
				fmt.Fprintln(&b, l)
			}
		}
	}
	golden(t, "story.txt", b.String())
}

type full struct{}

var errFull = errors.New("full")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestWriteTellsWhatFailed(t *testing.T) {
	if err := (&Table{Conns: 1}).Write(full{}); !errors.Is(err, errFull) {
		t.Errorf("got %v", err)
	}
}
