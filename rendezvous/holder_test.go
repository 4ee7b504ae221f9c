package rendezvous

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"rankstorm/rank"
	"rankstorm/test/freeport"
)

func TestListenerInode(t *testing.T) {
	// As an x86 writes them: 127.0.0.1:7471 listening and connected, 0.0.0.0:80, [::1]:7471, [::]:81.
	const v4 = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1D2F 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0
   1: 0100007F:1D2F 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0 100 0 0 10 0
   2: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 13 1 0 100 0 0 10 0
   3: broken
`
	const v6 = `
   0: 00000000000000000000000001000000:1D2F 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 21 1 0 100 0 0 10 0
   1: 00000000000000000000000000000000:0051 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 22 1 0 100 0 0 10 0
`
	for _, c := range []struct{ table, at, want string }{
		{v4, "127.0.0.1:7471", "12"},
		{v4, "10.0.0.1:7471", ""},
		{v4, "10.0.0.1:80", "13"},
		{v4, "[::1]:80", ""},
		{v6, "[::1]:7471", "21"},
		{v6, "[::1]:81", "22"},
		{v6, "127.0.0.1:81", "22"},
		{"", "127.0.0.1:81", ""},
	} {
		if got := listenerInode([]byte(c.table), netip.MustParseAddrPort(c.at)); got != c.want {
			t.Errorf("%s: inode %q, want %q", c.at, got, c.want)
		}
	}
}

// A program that holds the controller port and says nothing is named by pid and command.
func TestMuteProgramIsNamed(t *testing.T) {
	if port := os.Getenv("TEST_MUTE_LISTENER"); port != "" { // the program
		ln, err := net.Listen("tcp", port)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		fmt.Println("listening")
		time.Sleep(time.Minute)
		return
	}
	at := fmt.Sprintf("127.0.0.1:%d", freeport.At(t, "127.0.0.1"))
	cmd := exec.Command(os.Args[0], "-test.run=^TestMuteProgramIsNamed$", "-test.v")
	cmd.Env = append(os.Environ(), "TEST_MUTE_LISTENER="+at)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	said, b := "", make([]byte, 100)
	for !strings.Contains(said, "listening") {
		n, err := out.Read(b)
		if err != nil {
			t.Fatalf("the listener: %v, %q", err, said)
		}
		said += string(b[:n])
	}
	_, err = Join(context.Background(), Config{
		Controller: at, Procs: 2, K: 1, JoinTimeout: knockAnswer + time.Second,
		Record: rank.Record{Host: "h", LauncherProc: -1, LocalIndex: -1},
	})
	if want := fmt.Sprintf("pid %d (%s", cmd.Process.Pid, os.Args[0]); rank.ExitCode(err) != 3 || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want code 3 and %q", err, want)
	}
}
