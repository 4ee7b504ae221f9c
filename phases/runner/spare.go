package runner

import (
	"errors"
	"os"
	"syscall"
	"time"
)

const (
	spareFDs   = 2 // one to write the document with, one that a listener of the process may snatch meanwhile
	spareTries = 50
	sparePause = 10 * time.Millisecond
)

// spare are descriptors that a process keeps back from the start: if the storm takes all the others, it still has to
// write what it saw. They are given back when the document is written.
type spare []*os.File

func newSpare() (s spare) {
	for range spareFDs {
		if f, err := os.Open(os.DevNull); err == nil {
			s = append(s, f)
		}
	}
	return s
}

func (s *spare) giveBack() {
	for _, f := range *s {
		_ = f.Close()
	}
	*s = nil
}

// patiently writes a file, again and again for a moment if there is no descriptor for it.
func patiently(write func(path string, b []byte) error, path string, b []byte) error {
	for n := 1; ; n++ {
		err := write(path, b)
		if n == spareTries || !errors.Is(err, syscall.EMFILE) && !errors.Is(err, syscall.ENFILE) {
			return err
		}
		time.Sleep(sparePause)
	}
}
