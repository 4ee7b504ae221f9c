package rendezvous

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"rankstorm/rank"
)

// A process that runs out of descriptors while the job forms neither takes the
// others' streams nor reaches them, and to them looks like one behind a
// firewall. It still has its link to the controller, and says it there.

// lacks hears what this process met, and tells it once.
func (j *joiner) lacks(err error) {
	text := "no memory for sockets: " + errorText(err)
	if errors.Is(err, syscall.EMFILE) {
		text = "no descriptors left (" + errorText(err) + "): raise their number with ulimit -n"
		var limit syscall.Rlimit
		if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
			text = fmt.Sprintf("no descriptors left (%s, limit %d): raise it with ulimit -n", errorText(err), limit.Cur)
		}
	} else if errors.Is(err, syscall.ENFILE) {
		text = "no descriptors left on its host (" + errorText(err) + "): raise fs.file-max"
	} else if errors.Is(err, syscall.EADDRNOTAVAIL) {
		return // a matter of one address
	}
	j.mu.Lock()
	known := j.trouble != ""
	if !known {
		j.trouble = text
	}
	c := j.controller
	j.mu.Unlock()
	switch {
	case known:
	case c != nil:
		c.troubled(&j.cfg.Record, text)
	default:
		j.say("this process has " + text)
		j.tellTrouble()
	}
}

// errorText is the system's word for it.
func errorText(err error) string {
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		return no.Error()
	}
	return err.Error()
}

// tellTrouble tells the controller, if there is something to tell and a way.
func (j *joiner) tellTrouble() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.trouble == "" || j.link == nil {
		return
	}
	j.link.SetWriteDeadline(time.Now().Add(time.Second))
	_ = writeMessage(j.link, frameTrouble, trouble{Text: j.trouble}) // a broken link is seen by its reader
}

// troubled hears what a process lacks.
func (c *controller) troubled(rec *rank.Record, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	line := departure{record: rec}.String() + " has " + clip([]byte(text))
	if c.inPlace || !c.g.troubled(line) {
		return
	}
	if c.g.sealed { // else it is told with who is missing
		c.j.say(line)
	}
}
