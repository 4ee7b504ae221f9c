package runner

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"rankstorm/collect"
	"rankstorm/phases"
	"rankstorm/rank"
)

// meta is what the document says about the job before anything was measured.
func (p *process) meta() collect.Meta {
	t := p.table
	offset, _ := p.group.Offset()
	m := collect.Meta{
		RunID: t.RunID, Digest: hex.EncodeToString(t.Digest[:]), JobKey: p.cfg.Rendezvous.JobKey, StartedUTC: p.started.UTC().Format(time.RFC3339Nano),
		StartNS: p.startNS + offset, Version: p.cfg.Version, BuildID: t.Entry(p.self).BuildID, Args: p.cfg.Args,
		Settings: p.spec.Settings(), Limits: p.cfg.Limits,
		Transport: p.spec.Transport, Connect: p.spec.Shape.String(),
		Topology: p.spec.Topology, Params: topologyParams(p.spec.Topology), Stages: p.topo.Stages(), Edges: p.topo.Count(),
		Connections: p.spec.Connections, Rounds: p.spec.Rounds, Threads: p.spec.Threads,
		RoundConnections: func(round int32) int { return p.spec.Pass(round).Connections },
		Procs:            len(t.Procs), RanksPerProc: t.K,
	}
	for r := range rank.Rank(t.Size()) {
		proc := t.ProcOf(r)
		m.Ranks = append(m.Ranks, collect.RankMeta{
			Rank: r, Proc: proc, Host: t.HostOf(r), PID: t.Entry(proc).PID, LocalRank: t.LocalRank(r), CPUs: t.Entry(proc).CPUs,
		})
	}
	for proc := range rank.Proc(len(t.Procs)) {
		m.Addresses = append(m.Addresses, addresses(t, proc))
	}
	return m
}

// topologyParams are the parameters that were given, as text.
func topologyParams(p rank.Params) []rank.KV {
	var kv []rank.KV
	add := func(key, value string, given bool) {
		if given {
			kv = append(kv, rank.KV{Key: key, Value: value})
		}
	}
	add("initiators", p.Initiators, p.Initiators != "")
	add("targets", p.Targets, p.Targets != "")
	add("m", strconv.Itoa(p.M), p.M != 0)
	add("n", strconv.Itoa(p.N), p.N != 0)
	add("offsets", p.Offsets, p.Offsets != "")
	add("staged", "true", p.Staged)
	add("hot", p.Hot, p.Hot != "")
	add("hot_share", strconv.FormatFloat(p.HotShare, 'g', -1, 64), p.HotShare != 0)
	add("exclude_same_host", "true", p.ExcludeSameHost)
	add("no_rotate", "true", p.NoRotate)
	add("file", p.File, p.File != "")
	return kv
}

// report closes the document and begins to write it. Disk or terminal may be slow, and the others wait only so long for
// it: the driver goes on, and the outcome comes to reported.
func (r *rootShell) report() {
	p := r.p
	r.begun, r.reported = true, make(chan error, 1)
	r.display.clear()
	st := p.group.Stats()
	r.doc.Gossip = &collect.Gossip{
		Controller: st.Controller, Members: int64(st.Members), Agents: int64(st.Agents),
		Suspicions: int64(st.Suspicions), Refutations: int64(st.Refutations), GatherNS: st.GatherNS, SealNS: st.SealNS,
	}
	r.doc.Losses = r.losses.list()
	if slot, begun := r.m.Slot(); r.partial && begun {
		done, total := r.m.Progress()
		r.doc.Progress = &collect.ProgressDoc{Phase: string(slot.Phase), Round: slot.Round, Stage: slot.Stage, Done: done, Total: total}
	}
	r.doc.Finish(collect.NewExit(r.code, r.cause, r.partial))
	var b bytes.Buffer
	err := r.doc.Encode(&b)
	var doc *collect.Document
	if err == nil {
		// The table is printed from the bytes that are written, so that it can say nothing the document does not.
		doc, err = collect.Decode(bytes.NewReader(b.Bytes()))
	}
	if err != nil {
		r.reported <- err
		return
	}
	// What the figures show (a leak) decides an otherwise clean end, at every process.
	if r.code = doc.Exit.Code; r.code != 0 && r.cause == nil {
		r.cause = rank.Errorf(rank.KindFailed, "%s", doc.Exit.Text)
	}
	if w := p.cfg.Witness; w != nil {
		w.Ends(doc)
	}
	go func() { r.reported <- p.publish(doc, b.Bytes(), r.successor) }()
}

// out takes the outcome of the report.
func (r *rootShell) out(err error) {
	r.reported = nil
	switch {
	case err != nil && r.code == 0:
		e := rank.AsError(err, rank.KindFailed)
		r.code, r.cause = rank.ExitCode(e), e
	case err != nil: // the job's own error is the last line, and says nothing of this
		r.p.tell("%v", err)
	}
	r.step(phases.Input{Kind: phases.InReported, Told: &phases.Decision{Code: r.code, Cause: r.cause}})
}

// end is what Run returns at a root.
func (r *rootShell) end() error {
	if !r.begun && !r.m.Inherited() {
		r.report() // a second signal, or the own deadline: the root machine was not asked
	}
	if r.reported != nil {
		r.out(<-r.reported)
	}
	switch {
	case r.m.Inherited():
		return r.p.leave()
	case r.code == 0:
		return nil
	case r.cause == nil:
		return withCode(rank.Errorf(rank.KindFailed, "the job ended with exit code %d", r.code), r.code)
	}
	return withCode(r.cause, r.code)
}

// publish writes document and table. It runs beside the driver, and uses nothing of the process that changes.
func (p *process) publish(doc *collect.Document, b []byte, successor bool) (failed error) {
	if gap, _ := p.group.Stood(); gap > p.spec.LivenessTimeout {
		return nil // the driver sees it as well: the others have gone on without this process
	}
	p.spare.giveBack()
	if p.cfg.Witness != nil && p.cfg.Out == "" {
		return nil
	}
	if p.cfg.Out == "-" {
		if _, err := p.cfg.Stdout.Write(b); err != nil {
			_, failed = p.saveElsewhere(doc, b, successor, err)
		}
		return failed
	}
	path, moved := p.save(doc, b, successor)
	if failed = moved; moved != nil && path != "" && p.cfg.Out == "" { // nobody had asked for a place
		p.tell("%v", moved)
		failed = nil
	}
	switch err := p.printTable(doc); {
	case err == nil, errors.Is(err, syscall.EPIPE), errors.Is(err, os.ErrClosed): // nobody wants to see more
	case failed != nil:
		p.tell("the table could not be printed: %v", err)
	default:
		failed = rank.Errorf(rank.KindFailed, "the table could not be printed: %w: the result document is in %s", err, p.here(path))
		p.restate(doc, path, failed)
		return failed
	}
	if moved == nil && !p.cfg.Quiet {
		p.tell("result document on %s: %s", p.host(), path)
	}
	return failed
}

// host of this process.
func (p *process) host() string { return p.table.HostOf(p.first()) }

// here is where a file is, for those who read the output of many hosts.
func (p *process) here(path string) string { return path + " on " + p.host() }

// restate writes the document again whose job ends otherwise than it says.
func (p *process) restate(doc *collect.Document, path string, failed error) {
	b, changed := ended(doc, failed)
	if st, err := os.Stat(path); !changed || err != nil || !st.Mode().IsRegular() {
		return
	}
	if err := patiently(writeWhole, path, b); err != nil {
		p.tell("%v: the document says that the job ended with 0", err)
	}
}

// ended is a clean document with a failure of its report as the end; changed is false if it was not clean.
func ended(doc *collect.Document, failed error) (b []byte, changed bool) {
	if doc.Exit.Code != 0 {
		return nil, false
	}
	e := rank.AsError(failed, rank.KindFailed)
	doc.Finish(collect.NewExit(rank.ExitCode(e), e, doc.Exit.Partial))
	var out bytes.Buffer
	err := doc.Encode(&out)
	return out.Bytes(), err == nil
}

// oneAtATime lets several goroutines write lines.
type oneAtATime struct {
	mu sync.Mutex
	w  io.Writer
}

func (o *oneAtATime) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.w.Write(b)
}

// printTable prints the table of doc to standard output.
func (p *process) printTable(doc *collect.Document) error {
	if p.cfg.Stdout == nil || p.cfg.Witness != nil {
		return nil
	}
	return collect.WriteTable(p.cfg.Stdout, doc, collect.TableOptions{Columns: p.cfg.Columns, Color: p.cfg.Color})
}

// save writes the document where it was asked, or else where it can be written: then the error says why and where. path is
// "" if it is nowhere.
func (p *process) save(doc *collect.Document, b []byte, successor bool) (path string, err error) {
	path = p.cfg.Out
	if path == "" {
		path = "rankstorm-" + p.table.RunID + ".json"
	}
	write := writeWhole
	if successor {
		path, write = p.partialPath(path), writeNew
	}
	if err := patiently(write, path, b); err != nil {
		return p.saveElsewhere(doc, b, successor, err)
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return path, nil
}

// partialPath is where a successor of the root writes: beside the name that was asked for, and never over anything. Two
// successors may share the directory after a cut, so a name that is taken gets the run and the process added.
func (p *process) partialPath(asked string) string {
	base := strings.TrimSuffix(asked, ".json")
	if _, err := os.Lstat(base + ".partial.json"); err == nil {
		base += fmt.Sprintf("-%s-process%d", p.table.RunID, p.self)
	}
	return base + ".partial.json"
}

// writeNew writes a file that must not exist, completely or not at all.
func writeNew(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".rankstorm-*")
	if err != nil {
		return pathError(err, path)
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Link(f.Name(), path) // unlike a rename it fails where something is
	}
	if err == nil {
		err = os.Remove(f.Name())
	} else {
		_ = os.Remove(f.Name())
		if le, ok := errors.AsType[*os.LinkError](err); ok {
			return &fs.PathError{Op: "write", Path: path, Err: le.Err}
		}
		return pathError(err, path)
	}
	return err
}

// saveElsewhere puts the document into the temporary directory because it could not be written where it was asked. The
// error says so; path is "" if that failed, too.
func (p *process) saveElsewhere(doc *collect.Document, b []byte, successor bool, cause error) (path string, err error) {
	name := "rankstorm-" + p.table.RunID + ".json"
	if successor {
		name = fmt.Sprintf("rankstorm-%s-process%d.partial.json", p.table.RunID, p.self)
	}
	path = filepath.Join(os.TempDir(), name)
	moved := rank.Errorf(rank.KindFailed, "%w: the result document is in %s instead", cause, p.here(path))
	if p.cfg.Out != "" {
		if restated, changed := ended(doc, moved); changed {
			b = restated
		}
	}
	if err := patiently(writeWhole, path, b); err != nil {
		lost := rank.Errorf(rank.KindFailed, "the result document is lost: %w; nor in the temporary directory: %v", cause, err)
		_, _ = ended(doc, lost) // for the table, which is all that is left
		return "", lost
	}
	return path, moved
}

// writeWhole writes a file completely or not at all: no half-written result is ever found under its name.
func writeWhole(path string, b []byte) error {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return writeThrough(path, b)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".rankstorm-*")
	if err != nil {
		return pathError(err, path)
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return pathError(err, path)
	}
	return nil
}

// writeThrough writes to what cannot be renamed over: a pipe, a device,
// /dev/stdout. A pipe that nobody reads is an error, not a wait.
func writeThrough(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENXIO) {
		return &fs.PathError{Op: "write", Path: path, Err: errors.New("nobody reads this pipe")}
	}
	if err != nil {
		return pathError(err, path)
	}
	_, err = f.Write(b)
	return pathError(errors.Join(err, f.Close()), path)
}

// pathError names the path that the user knows instead of the temporary one.
func pathError(err error, path string) error {
	if err == nil {
		return nil
	}
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return &fs.PathError{Op: "write", Path: path, Err: pe.Err}
	}
	return err
}

func (p *process) stderr() io.Writer {
	if p.cfg.Stderr == nil {
		return io.Discard
	}
	return p.cfg.Stderr
}
