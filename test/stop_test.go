package test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

const stopped = 300 * time.Millisecond

// A rank that is stopped from outside for 300 ms at a random moment of the connect phase is named in the cause lines with
// at least 250 ms, and as stopped if the kernel's scheduler says that it waited for no CPU.
// RANKSTORM_STOPS sets the number of stops, RANKSTORM_SEED replays one.
func TestStopOfARankInConnectIsNamed(t *testing.T) {
	for _, seed := range seeds(t, "RANKSTORM_STOPS", 3) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			// Under load a job may begin to connect late and the stop miss the phase; that says nothing.
			for try := range 5 {
				if s := stopOnce(t, rng); s.inside {
					s.judge(t, seed)
					return
				}
				t.Logf("seed %d: try %d fell outside of the connect phase", seed, try)
			}
			t.Errorf("seed %d: no stop fell into the connect phase", seed)
		})
	}
}

// stop is one job and what was done to it.
type stop struct {
	args     []string
	rank     int
	at, end  time.Time // of SIGSTOP and SIGCONT
	into     time.Duration
	inside   bool
	evidence string
	proven   bool // by the scheduler's own figures: it neither ran nor waited for a CPU
	causes   []struct {
		Kind, Phase, Evidence string
		Rank                  *int
		ValueNS               int64 `json:"value_ns"`
	}
	stderr string
}

// stopOnce runs a paced job whose connect phase lasts for about two seconds and stops one process in it.
func stopOnce(t *testing.T, rng *rand.Rand) (s stop) {
	t.Helper()
	procs := 4 + 4*rng.IntN(2)
	conns := 1 + rng.IntN(8)
	wall := 1500*time.Millisecond + time.Duration(rng.Int64N(int64(time.Second)))
	rate := float64(procs*(procs-1)*conns) / wall.Seconds()
	dir := t.TempDir()
	path := filepath.Join(dir, "result.json")
	s.args = []string{
		"run", "--spawn", fmt.Sprint(procs), "-c", fmt.Sprint(conns), "--connect", fmt.Sprintf("rate=%.0f", max(1, rate)),
		"--hold", "qp=200ms", "-q", "-o", path,
	}
	cmd := exec.Command(binary, s.args...)
	cmd.Dir = dir
	s.rank = rng.IntN(procs)
	moment := 200*time.Millisecond + time.Duration(rng.Int64N(int64(wall)))
	var err error
	s.stderr, err = inHold(t, cmd, procs, func(pids map[int]int) {
		time.Sleep(moment)
		s.at = time.Now()
		if syscall.Kill(pids[s.rank], syscall.SIGSTOP) == nil { // else the job is over, which the document will show
			time.Sleep(stopped)
			s.end = time.Now()
			_ = syscall.Kill(pids[s.rank], syscall.SIGCONT)
		}
	})
	if err != nil {
		t.Fatalf("rankstorm %q: %v\n%s", s.args, err, s.stderr)
	}
	s.read(t, path)
	return s
}

// read finds in the document where the stop fell and what was said.
func (s *stop) read(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Started time.Time `json:"started_utc"`
		Phases  []struct {
			Phase   string
			BeganNS int64 `json:"began_ns"`
			WallNS  int64 `json:"wall_ns"`
			Ranks   []json.RawMessage
		}
		Pauses []struct {
			Proc   int
			Phase  string
			GapNS  int64  `json:"gap_ns"`
			WaitNS *int64 `json:"wait_ns"`
			RunNS  *int64 `json:"run_ns"`
		}
		Causes json.RawMessage
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(d.Causes, &s.causes); err != nil {
		t.Fatal(err)
	}
	for _, p := range d.Pauses {
		if p.Proc == s.rank && p.Phase == "connect" && p.WaitNS != nil && 2*(*p.WaitNS+*p.RunNS) <= p.GapNS {
			s.proven = true
		}
	}
	for _, p := range d.Phases {
		if p.Phase == "connect" {
			begin := d.Started.Add(time.Duration(p.BeganNS))
			s.into = s.at.Sub(begin)
			s.inside = s.into >= 0 && s.into < time.Duration(p.WallNS)
			s.evidence = fmt.Sprintf("connect lasted %v, rank %d was stopped after %v for %v\n%s\n%s", time.Duration(p.WallNS), s.rank, s.into, s.end.Sub(s.at), d.Causes, p.Ranks)
		}
	}
}

func (s *stop) judge(t *testing.T, seed uint64) {
	t.Helper()
	named := false
	for _, c := range s.causes {
		switch c.Kind {
		case "stopped":
		case "stall", "straggler", "starved": // where others load the machine it is both
			if s.proven {
				continue
			}
		default:
			continue
		}
		if c.Rank != nil && *c.Rank == s.rank && c.Phase == "connect" && c.ValueNS >= int64(250*time.Millisecond) {
			named = true
			t.Logf("seed %d, after %v: %s", seed, s.into, c.Evidence)
		}
	}
	if !named {
		t.Errorf("seed %d: rank %d is not named: %q\n%s\n%s", seed, s.rank, s.args, s.evidence, s.stderr)
	}
}
