package rendezvous

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"rankstorm/rank"
)

// Inheritance is what a child of Spawn gets from its parent.
type Inheritance struct {
	Listener net.Listener       // controller port; nil but at process 0
	Packet   net.PacketConn     // same port number, UDP; nil but at process 0
	Launch   Launch             // family "spawn"
	Host     string             // host name to pretend, "": none
	Secret   []byte             // 32 bytes, the same at all children
	Lost     <-chan *rank.Error // at most one: a sister process ended before its time
	Parent   <-chan struct{}    // closed when the parent is gone: end at once
	PID      int                // of the parent
	Typed    []string           // what the user typed, nil if it is too long to be told

	pipe *os.File
	done chan struct{}
	once sync.Once
}

// Inherited takes what the parent left if this process was started by Spawn;
// otherwise it gives nil and no error. To be called once, early: it removes the
// variable that tells of it.
func Inherited() (*Inheritance, error) {
	text := os.Getenv(spawnEnv)
	if text == "" {
		return nil, nil
	}
	if err := os.Unsetenv(spawnEnv); err != nil {
		return nil, rank.Errorf(rank.KindInternal, "cannot unset %s: %w", spawnEnv, err)
	}
	broken := func(err error) error {
		return rank.Errorf(rank.KindUsage, "%s=%s does not name what a parent left: %w; unset it", spawnEnv, text, err)
	}
	var files []*os.File
	closeFiles := func() {
		for _, f := range files {
			f.Close()
		}
	}
	for part := range strings.SplitSeq(text, ",") {
		fd, err := strconv.Atoi(part)
		if err == nil && fd < spawnPipeFD {
			err = strconv.ErrRange
		}
		if err == nil {
			syscall.CloseOnExec(fd)
			err = syscall.SetNonblock(fd, true) // so that Close ends a Read
		}
		if err != nil {
			closeFiles()
			return nil, broken(err)
		}
		files = append(files, os.NewFile(uintptr(fd), "inherited"))
	}
	in, err := inherit(files[0])
	if err != nil {
		closeFiles()
		return nil, broken(err)
	}
	if len(files) == 3 {
		in.Listener, err = net.FileListener(files[1])
		if err == nil {
			in.Packet, err = net.FilePacketConn(files[2])
		}
		files[1].Close() // the listener and socket are duplicates
		files[2].Close()
		if err != nil {
			in.Close()
			return nil, broken(err)
		}
	}
	return in, nil
}

// inherit reads the parent's greeting and then listens to it.
func inherit(pipe *os.File) (*Inheritance, error) {
	r := bufio.NewReaderSize(pipe, spawnMaxLine)
	line, err := r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	var hello spawnHello
	if err := json.Unmarshal(line, &hello); err != nil {
		return nil, err
	}
	if hello.Procs < 1 || hello.Controller == "" {
		return nil, errors.New("its first line is no greeting")
	}
	lost, parent := make(chan *rank.Error, 1), make(chan struct{})
	in := &Inheritance{
		Launch: Launch{
			Family: "spawn", Proc: hello.Proc, Procs: hello.Procs, LocalIndex: hello.LocalIndex, LocalSize: hello.LocalSize,
			JobKey: hello.JobKey, Controller: hello.Controller,
		},
		Host: hello.Host, Secret: hello.Secret, PID: hello.PID, Typed: hello.Typed,
		Lost: lost, Parent: parent, pipe: pipe, done: make(chan struct{}),
	}
	go in.listen(r, lost, parent)
	return in, nil
}

func (in *Inheritance) listen(r *bufio.Reader, lost chan<- *rank.Error, parent chan<- struct{}) {
	defer close(in.done)
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			close(parent) // also after Close: nobody speaks for the parent any more
			return
		}
		var end spawnEnd
		if json.Unmarshal(line, &end) != nil {
			continue
		}
		select {
		case lost <- end.failure():
		default: // the first cause counts
		}
	}
}

// JoinContext is the context to Join with: it ends with the failure of a
// sister process as its cause, or when the parent is gone. Call cancel when
// Join has returned; from then on the control links judge.
func (in *Inheritance) JoinContext(ctx context.Context) (joining context.Context, cancel context.CancelFunc) {
	joining, end := context.WithCancelCause(ctx)
	go func() {
		select {
		case err := <-in.Lost:
			end(ToldElsewhere(err))
		case <-in.Parent:
			end(in.Gone())
		case <-joining.Done():
		}
	}()
	return joining, func() { end(context.Canceled) }
}

// Close stops listening to the parent. The sockets belong to whom they were
// given.
func (in *Inheritance) Close() error {
	in.once.Do(func() {
		in.pipe.Close()
		<-in.done
	})
	return nil
}

// Gone is the cause of an end because the parent is gone.
func (in *Inheritance) Gone() *rank.Error {
	return rank.Errorf(rank.KindLost, "the process that spawned this job (pid %d) is gone", in.PID)
}
