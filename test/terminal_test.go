package test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mattn/go-runewidth"
	"golang.org/x/sys/unix"

	"rankstorm/test/freeport"
	"rankstorm/test/need"
)

// terminal opens a pseudo terminal of so many columns: what the program gets, and what a person sees.
func terminal(t *testing.T, columns uint16) (tty, screen *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal("no pseudo terminals: ", err)
	}
	t.Cleanup(func() { screen.Close() })
	if err := unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: columns}); err != nil {
		t.Fatal(err)
	}
	return tty, screen
}

// onTerminal runs the program on a terminal and returns all that was written to it.
func onTerminal(t *testing.T, columns uint16, environment []string, args ...string) string {
	t.Helper()
	return redirected(t, columns, environment, func(*exec.Cmd) {}, args...)
}

// redirected is onTerminal with streams that go elsewhere.
func redirected(t *testing.T, columns uint16, environment []string, redirect func(cmd *exec.Cmd), args ...string) string {
	t.Helper()
	tty, screen := terminal(t, columns)
	cmd := exec.Command(binary, args...)
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), environment...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	redirect(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(time.Minute, func() { cmd.Process.Signal(syscall.SIGQUIT) })
	defer limit.Stop()
	tty.Close()
	var all bytes.Buffer
	_, _ = all.ReadFrom(screen) // ends with an error when the last process has closed the terminal
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, all.String())
	}
	return strings.ReplaceAll(all.String(), "\r\n", "\n")
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*[a-zA-Z]")

// fits fails the test if a line is wider than the terminal although it could be broken between words.
func fits(t *testing.T, text string, columns int) {
	t.Helper()
	for line := range strings.Lines(escapes.ReplaceAllString(text, "")) {
		for part := range strings.SplitSeq(strings.TrimRight(line, "\n"), "\r") {
			if strings.HasPrefix(part, "rankstorm: ") {
				continue // notes and errors are one line, for whatever reads them
			}
			// A label and one word cannot be broken.
			if runewidth.StringWidth(part) > columns && len(strings.Fields(part)) > 2 {
				t.Errorf("%d cells on %d: %q", runewidth.StringWidth(part), columns, part)
			}
		}
	}
}

// On terminals of any kind the result can be read: within the width, with colours and a moving line only where they
// are wanted.
func TestTerminals(t *testing.T) {
	long := "storage-and-compute-" + strings.Repeat("x", 36) + ".rack-17.example.com"
	for _, c := range []struct {
		name           string
		columns        uint16
		env            []string
		host           string
		colors, moving bool
	}{
		{"a colour terminal", 120, []string{"TERM=xterm-256color", "NO_COLOR="}, "n0", true, true},
		{"40 columns", 40, []string{"TERM=xterm", "NO_COLOR="}, "n0", true, true},
		{"NO_COLOR", 80, []string{"TERM=xterm", "NO_COLOR=1"}, "n0", false, true},
		{"TERM=dumb", 80, []string{"TERM=dumb", "NO_COLOR="}, "n0", false, false},
		{"long host names", 40, []string{"TERM=dumb", "NO_COLOR="}, long, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := onTerminal(t, c.columns, c.env, "run", "--spawn", "3", "-c", "20", "--host", c.host,
				"--delay", "rank=1,phase=connect,ms=1500", "-o", "r.json")
			fits(t, text, int(c.columns))
			if colors := strings.Contains(text, "\x1b[1m"); colors != c.colors {
				t.Errorf("colours: %t, want %t", colors, c.colors)
			}
			if moving := strings.Contains(text, "\r\x1b[Kconnect ") || strings.Contains(text, "░ connect "); moving != c.moving {
				t.Errorf("a moving line: %t, want %t", moving, c.moving)
			}
			if !c.colors && !c.moving && strings.ContainsAny(text, "\x1b\r") {
				t.Errorf("control characters in %q", text)
			}
			words := strings.Join(strings.Fields(escapes.ReplaceAllString(text, "")), " ")
			for _, want := range []string{"120 established", "began late by", c.host, "exit 0 clean", "result document on " + c.host} {
				if !strings.Contains(words, want) {
					t.Errorf("%q is missing", want)
				}
			}
			if t.Failed() {
				t.Logf("%q", text)
			}
		})
	}
}

// Help, plans and devices fit too. The figures of a plan need 50 columns.
func TestTextsOnTerminals(t *testing.T) {
	texts := []string{"--help", "run --help", "cmtime --help", "help phases", "help topologies", "devices"}
	for columns, texts := range map[uint16][]string{
		80: append(texts, "plan --ranks 64 --topology rail --ranks-per-host 8 --rank 3"),
		40: texts,
	} {
		for _, args := range texts {
			text := onTerminal(t, columns, nil, strings.Fields(args)...)
			fits(t, text, int(columns))
			if whole := onTerminal(t, 1000, nil, strings.Fields(args)...); strings.Join(strings.Fields(text), " ") != strings.Join(strings.Fields(whole), " ") {
				t.Errorf("rankstorm %s on %d columns has other words", args, columns)
			}
		}
	}
}

// The width that counts is that of the terminal a text goes to, if it goes to one.
func TestEachStreamHasItsWidth(t *testing.T) {
	env := []string{"TERM=dumb"}
	job := []string{"run", "--spawn", "2", "-o", "r.json"}
	var file bytes.Buffer
	redirected(t, 40, env, func(cmd *exec.Cmd) { cmd.Stdout = &file }, job...)
	for _, want := range []string{"p99.9", "slowest", "count"} {
		if !strings.Contains(file.String(), want) {
			t.Errorf("a table in a file lacks column %s because the terminal is narrow:\n%s", want, file.String())
		}
	}
	file.Reset()
	fits(t, redirected(t, 40, env, func(cmd *exec.Cmd) { cmd.Stderr = &file }, job...), 40)
}

// A process that prints no table says on its terminal who does, and nothing where nobody watches it.
func TestWhoPrintsTheTable(t *testing.T) {
	port := freeport.At(t, "127.0.0.1")
	line := func(rank string) []string {
		return []string{"run", "-C", fmt.Sprintf("127.0.0.1:%d", port), "-P", "3", "--rank", rank, "-o", "r.json"}
	}
	const secret = "RANKSTORM_SECRET=x" // no line about an open job
	var unwatched bytes.Buffer
	others := []*exec.Cmd{exec.Command(binary, line("0")...), exec.Command(binary, line("1")...)}
	for i, cmd := range others {
		cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), secret)
		if i == 1 {
			cmd.Stderr = &unwatched
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if text := onTerminal(t, 100, []string{secret}, line("2")...); !strings.HasPrefix(text, "rankstorm: this is rank 2 of 3; rank 0 on ") || strings.Count(text, "\n") != 1 {
		t.Errorf("rank 2 says %q", text)
	}
	for _, cmd := range others {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	if unwatched.Len() > 0 {
		t.Errorf("rank 1 says %q", unwatched.String())
	}
}

// Into a file or a log go whole lines, and among them how far a long phase or many rounds are.
func TestProgressWithoutTerminal(t *testing.T) {
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"a long phase", "rankstorm: connect 2/6 ", []string{"--spawn", "3", "--delay", "rank=1,phase=connect,ms=5000"}},
		{"many rounds", "rankstorm: rounds ", []string{"--spawn", "2", "--rounds", "0", "--max-time", "15s"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "many rounds" && testing.Short() {
				t.Skip("a line about rounds comes after 10 s; not with -short")
			}
			args := append([]string{"run", "-o", "r.json"}, c.args...)
			cmd := exec.Command(binary, args...)
			var stderr bytes.Buffer
			cmd.Dir, cmd.Stderr = t.TempDir(), &stderr
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, stderr.String())
			}
			if bytes.ContainsAny(out, "\x1b\r") || strings.ContainsAny(stderr.String(), "\x1b\r") {
				t.Errorf("control characters in %q and %q", out, stderr.String())
			}
			if !strings.Contains(stderr.String(), c.want) {
				t.Errorf("stderr says %q, want %q", stderr.String(), c.want)
			}
		})
	}
}

// A reader that goes after the first line ends nothing and loses nothing.
func TestHead(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command("sh", "-c", `"$1" run --spawn 3 -o r.json | head -n 1`, "sh", binary)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil || strings.Count(string(out), "\n") != 1 || !strings.HasPrefix(string(out), "3 ranks") {
		t.Errorf("%v: %q", err, out)
	}
	if _, err := os.Stat(filepath.Join(dir, "r.json")); err != nil || strings.Count(stderr.String(), "\n") != 1 {
		t.Errorf("%v: stderr %q, want one line", err, stderr.String())
	}
}

// On a full disk and in a directory that cannot be written the document goes elsewhere, and if somebody had asked for that
// place the job has failed, or does not begin; if there is no place at all, the job fails and says so, with the table printed, and leaves no half file.
func TestDisksThatTakeNothing(t *testing.T) {
	enter := []string{"unshare", "--mount"}
	if os.Getuid() != 0 {
		enter = []string{"unshare", "--map-root-user", "--mount"}
	}
	if out, err := exec.Command(enter[0], append(slices.Clone(enter[1:]), "mount", "-t", "tmpfs", "tmpfs", t.TempDir())...).CombinedOutput(); err != nil {
		need.Absent(t, "mount", "no small disk can be made: %s", out)
	}
	for _, c := range []struct {
		name, options, out, says, end string
		code                          int
		nowhere                       bool
	}{
		{"full", "size=16k", "", "no space left on device: the result document is in ", "", 0, false},
		{"read-only", "ro", "", "read-only file system: the result document is in ", "", 0, false},
		{"full, where it was asked for", "size=16k", "-o=r.json", "no space left on device: the result document is in ", "instead", 1, false},
		{"read-only, where it was asked for", "ro", "-o=r.json", "-o/--out r.json: folder .: read-only file system: ", "", 2, true},
		{"full and nowhere else", "size=16k", "", "the result document is lost: ", "no space left on device", 1, true},
		{"read-only and nowhere else", "ro", "", "the result document is lost: ", "read-only file system", 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			disk, tmp := t.TempDir(), t.TempDir()
			elsewhere := tmp
			if c.nowhere {
				elsewhere = disk
			}
			script := `mount -t tmpfs -o "$1" tmpfs "$2" && cd "$2" && "$3" run --spawn 2 $4; code=$?; ls -A; exit $code`
			cmd := exec.Command(enter[0], append(slices.Clone(enter[1:]), "sh", "-c", script, "sh", c.options, disk, binary, c.out)...)
			cmd.Env = append(os.Environ(), "TMPDIR="+elsewhere)
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			if code := exitCode(err); code != c.code || !strings.Contains(stderr.String(), c.says) {
				t.Errorf("exit %d, want %d; stderr %q, want %q", code, c.code, stderr.String(), c.says)
			}
			last := "exit         0 clean\n"
			switch {
			case c.code == 2:
				last = ""
			case c.code == 1:
				last = c.end + "\n"
			}
			if last == "" && len(out) > 0 || !strings.HasSuffix(string(out), last) {
				t.Errorf("no table, or files are left: %q", out)
			}
			if kept, _ := filepath.Glob(filepath.Join(tmp, "rankstorm-*.json")); (len(kept) == 1) == c.nowhere {
				t.Errorf("documents %v", kept)
			}
		})
	}
}
