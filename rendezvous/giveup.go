package rendezvous

import (
	"cmp"
	"fmt"
	"time"

	"rankstorm/rank"
)

// timedOut says why the job did not form.
func (j *joiner) timedOut() error {
	j.mu.Lock()
	problem, muted, nameless := j.problem, j.muted, j.nameless
	j.mu.Unlock()
	problem = j.whyNot(problem, muted)
	j.mu.Lock()
	c, facts, toldBy, trouble, lost := j.controller, j.facts, j.toldBy, j.trouble, ""
	silent := time.Since(j.heard)
	switch {
	case j.lostWhy != "":
		lost = fmt.Sprintf("the controller (%s) was lost after %d s: %s", toldBy, seconds(j.lostAt), j.lostWhy)
		if problem != j.goneText() {
			lost += "; since then: " + problem
		}
	case toldBy != "" && silent > j.cfg.LivenessTimeout/2: // it asks twice as often: nobody may be there to tell the user
		lost = fmt.Sprintf("the controller (%s) is silent for %v", toldBy, silent.Round(100*time.Millisecond))
	}
	j.mu.Unlock() // the controller has a lock of its own, which comes first
	limit := j.cfg.JoinTimeout
	if trouble != "" && c == nil { // at the controller it is among what is told
		return rank.Errorf(rank.KindRendezvous, "the job did not form within %v: this process has %s%s", limit, trouble, after("; ", lost))
	}
	switch {
	case j.sealing.Load():
		return rank.Errorf(rank.KindRendezvous, "the job did not form within %v: all %d processes came, but the rank table did not reach them all%s",
			limit, j.cfg.Procs, cmp.Or(c.handedTo(), after(": ", lost)))
	case c != nil:
		return rank.Errorf(rank.KindRendezvous, "the job did not form within %v: %s", limit, c.missing())
	case lost != "": // nobody on this side hears of it any more
		return rank.Errorf(rank.KindRendezvous, "the job did not form within %v: %s%s", limit, lost, after("; before it said: ", facts))
	case facts != "":
		return told{rank.Errorf(rank.KindRendezvous, "the job did not form within %v: controller (%s) said: %s", limit, toldBy, facts)}
	case toldBy != "":
		return rank.Errorf(rank.KindRendezvous, "the job did not form within %v: the controller (%s) is still waiting for others", limit, toldBy)
	}
	if problem == "" {
		problem = "no attempt came to an end"
	}
	hint := "is a process started on that host with the same -C, and no firewall between?"
	switch {
	case nameless:
		hint = "with -C name a host that this one can look up, or give its address"
	case j.cfg.Launch.ControllerFrom != "":
		hint = "if no process runs on that host, name another one with -C HOST"
	}
	return rank.Errorf(rank.KindRendezvous, "no controller at %s within %v: %s; %s", j.where(), limit, problem, hint)
}

// goneText is what is said when the controller that let this process in is gone. j.mu is held.
func (j *joiner) goneText() string { return "the controller (" + j.toldBy + ") is gone" }

// after puts something before a text that is not empty.
func after(before, text string) string {
	if text == "" {
		return ""
	}
	return before + text
}
