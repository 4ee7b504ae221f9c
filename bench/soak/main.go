// Soak runs a job of many rounds with the real program and prints what its processes held after rounds, as the result
// document has it: what a million connections leave behind.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/tabwriter"
)

// level is one figure of all processes.
type level struct {
	Sum int64 `json:"sum"`
	Max int64 `json:"max"`
}

// document is what is read of a result document.
type document struct {
	Rounds []struct {
		Round       int64  `json:"round"`
		AtNS        int64  `json:"at_ns"`
		Connections int64  `json:"connections"`
		FDs         level  `json:"fds"`
		Goroutines  level  `json:"goroutines"`
		RSS         level  `json:"rss_bytes"`
		Heap        level  `json:"heap_bytes"`
		TimeWait    *int64 `json:"time_wait"`
	} `json:"round_resources"`
	Growth *struct {
		FromRound  int64 `json:"from_round"`
		FDs        int64 `json:"fds_per_1000_rounds"`
		Goroutines int64 `json:"goroutines_per_1000_rounds"`
		RSS        int64 `json:"rss_bytes_per_1000_rounds"`
		Heap       int64 `json:"heap_bytes_per_1000_rounds"`
	} `json:"growth"`
	Exit struct {
		Code int    `json:"code"`
		Text string `json:"text"`
	} `json:"exit"`
}

func main() {
	if err := soak(); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func soak() error {
	dir := flag.String("dir", "bench/out", "`folder` with the program; the document and the figures of the plot go there")
	procs := flag.Int("procs", 4, "processes")
	conns := flag.Int("c", 100, "connections per edge")
	total := flag.Int("total", 1_000_000, "connections in all, at least")
	rows := flag.Int("rows", 16, "rows to print")
	flag.Parse()
	if *procs < 2 || *conns < 1 || *total < 1 || *rows < 2 {
		return fmt.Errorf("give at least 2 -procs, 1 -c, 1 -total and 2 -rows")
	}
	perRound := *procs * (*procs - 1) * *conns
	rounds := (*total + perRound - 1) / perRound
	doc := filepath.Join(*dir, "soak.json")
	args := []string{"run", "--spawn", strconv.Itoa(*procs), "-c", strconv.Itoa(*conns), "--rounds", strconv.Itoa(rounds), "-q", "-o", doc}
	fmt.Printf("rankstorm %s\n%d rounds of %d connections\n", strings.Join(args[:len(args)-3], " "), rounds, perRound)
	cmd := exec.Command(filepath.Join(*dir, "rankstorm"), args...)
	cmd.Stderr = os.Stderr
	if out, err := cmd.Output(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	b, err := os.ReadFile(doc)
	if err != nil {
		return err
	}
	var d document
	if err := json.Unmarshal(b, &d); err != nil {
		return fmt.Errorf("%s: %w", doc, err)
	}
	if len(d.Rounds) == 0 {
		return fmt.Errorf("%s has no resources after rounds", doc)
	}
	if err := d.figures(filepath.Join(*dir, "soak.dat")); err != nil {
		return err
	}
	return d.print(*rows, len(b))
}

// figures writes a line per listed round for bench/soak.gp.
func (d *document) figures(path string) error {
	var b strings.Builder
	for _, r := range d.Rounds {
		fmt.Fprintf(&b, "%d %d %d %d %d %d\n", r.Connections, r.FDs.Sum, r.Goroutines.Sum, r.RSS.Sum, r.Heap.Sum, known(r.TimeWait))
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

func known(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

func (d *document) print(rows, size int) error {
	const mib = 1 << 20
	tab := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tab, "round\tconnections\tconn/s\tfds\tgoroutines\tresident\theap\tTIME_WAIT\t")
	last := -1
	for row := range rows {
		i := row * (len(d.Rounds) - 1) / (rows - 1)
		if i == last {
			continue
		}
		r := d.Rounds[i]
		rate := "–"
		if last >= 0 {
			before := d.Rounds[last]
			rate = fmt.Sprintf("%.0f", float64(r.Connections-before.Connections)*1e9/float64(r.AtNS-before.AtNS))
		}
		last = i
		fmt.Fprintf(tab, "%d\t%d\t%s\t%d\t%d\t%.1f MiB\t%.1f MiB\t%d\t\n", r.Round+1, r.Connections, rate, r.FDs.Sum, r.Goroutines.Sum,
			float64(r.RSS.Sum)/mib, float64(r.Heap.Sum)/mib, known(r.TimeWait))
	}
	if err := tab.Flush(); err != nil {
		return err
	}
	if g := d.Growth; g != nil {
		fmt.Printf("per 1,000 rounds from round %d on: %+d fds, %+d goroutines, %+.2f MiB resident, %+.2f MiB heap (all processes)\n",
			g.FromRound+1, g.FDs, g.Goroutines, float64(g.RSS)/mib, float64(g.Heap)/mib)
	}
	fmt.Printf("document %.2f MB, exit %d %s\n", float64(size)/1e6, d.Exit.Code, d.Exit.Text)
	return nil
}
