package test

import (
	"bufio"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Connections of strangers to the control port, open while the job ends, are no
// leak of the job and disturb nothing.
func TestJunkAtTheControlPort(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()

	dir := t.TempDir()
	var procs [2]*exec.Cmd
	var held [2]chan bool
	var said [2]strings.Builder
	for i := range procs {
		cmd := exec.Command(binary, "run", "-C", address, "-P", "2", "--rank", fmt.Sprint(i), "-c", "4",
			"--hold", "connect=500ms", "-o", filepath.Join(dir, "r.json"))
		cmd.Dir = dir
		stderr, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Process.Kill()
		procs[i], held[i] = cmd, make(chan bool)
		go func() {
			defer close(held[i])
			for lines := bufio.NewScanner(stderr); lines.Scan(); {
				fmt.Fprintln(&said[i], lines.Text())
				if strings.Contains(lines.Text(), "phase connect") {
					held[i] <- true
				}
			}
		}()
	}
	for i := range held {
		if !<-held[i] {
			t.Fatalf("process %d does not come to connect: %s", i, said[i].String())
		}
	}
	for _, junk := range []string{"", "\x00", "K", "G", "C", "GET / HTTP/1.1\r\n\r\n", "K\xff\xff\xff\xff\xff\xff", "G" + strings.Repeat("\x09", 40), "C" + strings.Repeat("\xff", 40)} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte(junk)); err != nil {
			t.Fatal(err)
		}
	}
	for i, cmd := range procs {
		for range held[i] {
		}
		if code := exitCode(cmd.Wait()); code != 0 {
			t.Errorf("process %d: exit %d, want 0: %s", i, code, said[i].String())
		}
	}
}
