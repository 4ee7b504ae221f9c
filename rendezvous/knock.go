package rendezvous

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/vmihailenco/msgpack/v5"

	"rankstorm/rank"
)

// knockVersion is the version of the protocol between processes. It is raised
// when a knock or what follows it changes; the frame around a knock stays, so
// that an old process is refused by name and not by a broken link.
const knockVersion = 1

// Frame types on a knock link. Bodies are msgpack.
const (
	frameKnock     = 0x40 + iota // process → controller: knock, once
	frameWelcome                 // controller → process: welcome
	frameWait                    // controller → process: waiting, what is still missing; also a sign of life
	frameTurnAway                // controller → process: turnAway; the link ends
	frameTakeTable               // controller → process 0: encoded table, to be sealed
	frameInPlace                 // process → controller: my group is sealed, I hang up
	frameJobFailed               // controller → process: rank.Error, the job did not form
	frameThere                   // controller → process: are you there
	frameHere                    // process → controller: answer to frameThere
	frameTrouble                 // process → controller: trouble, what it lacks
)

const (
	maxKnock    = 256 << 10 // bytes of a knock
	maxControl  = 64        // addresses in a record
	maxText     = 4 << 10   // bytes of a name or value
	maxSettings = 1 << 10   // settings in a knock, and own ones in a record
)

// knock is what a process says before it is let in.
type knock struct {
	Proto    int         `msgpack:"proto"`
	Job      [32]byte    `msgpack:"job"`     // hash of the job key
	JobKey   string      `msgpack:"job_key"` // for messages
	Procs    int         `msgpack:"procs"`
	K        int         `msgpack:"k"`
	Settings []rank.KV   `msgpack:"settings"`
	Record   rank.Record `msgpack:"record"`
}

// welcome lets a process in.
type welcome struct {
	Seeds      []netip.AddrPort `msgpack:"seeds"` // where the controller gossips
	Controller string           `msgpack:"controller"`
}

// waiting tells how far gathering is.
type waiting struct {
	Text    string `msgpack:"text"`    // "" : nothing new
	Sealing bool   `msgpack:"sealing"` // the table is on its way
	Members int    `msgpack:"members"` // gossip members and agents among them, with the first Sealing
	Agents  int    `msgpack:"agents"`
}

// trouble is what a process lacks to take part.
type trouble struct {
	Text string `msgpack:"text"`
}

// turnAway refuses a process.
type turnAway struct {
	Text string `msgpack:"text"` // what the refused process prints
}

// jobHash is the job key's hash; gossip and the host socket are named after it.
func jobHash(key string) [32]byte { return sha256.Sum256([]byte("rankstorm job\x00" + key)) }

func hashText(h [32]byte) string { return hex.EncodeToString(h[:16]) }

// decodeKnock decodes what anybody on the network may have sent.
func decodeKnock(body []byte) (k knock, err error) {
	if err := decode(body, &k); err != nil {
		return knock{}, err
	}
	if len(k.Settings) > maxSettings || len(k.JobKey) > maxText {
		return knock{}, fmt.Errorf("knock: more than %d settings or %d bytes of job key", maxSettings, maxText)
	}
	for _, kv := range k.Settings {
		if len(kv.Key) > maxText || strings.ContainsFunc(kv.Key, func(c rune) bool { return !unicode.IsGraphic(c) }) {
			return knock{}, fmt.Errorf("knock: setting %s", quote(kv.Key))
		}
	}
	return k, checkRecord(&k.Record)
}

// CheckHost says what is wrong with a host name that was given by hand, "" if
// nothing: it has 1 to 255 bytes, and only characters that show on one line.
func CheckHost(name string) (wrong string) {
	switch {
	case name == "" || len(name) > 255:
		return fmt.Sprintf("a host name of %d bytes: give 1 to 255", len(name))
	case !utf8.ValidString(name) || strings.ContainsFunc(name, func(c rune) bool { return !unicode.IsGraphic(c) || unicode.IsSpace(c) }):
		return fmt.Sprintf("host name %s has a space or a character that does not show", quote(name))
	}
	return ""
}

// checkOwn refuses what every controller would take for junk, while somebody
// can still be told.
func checkOwn(k knock) error {
	wrong := func(what string) error {
		return rank.Errorf(rank.KindUsage, "%s", what)
	}
	if len(k.JobKey) > maxText {
		return wrong(fmt.Sprintf("--job has %d bytes: give at most %d", len(k.JobKey), maxText))
	}
	if what := CheckHost(k.Record.Host); what != "" {
		return wrong(what)
	}
	for _, kv := range k.Record.Own {
		if len(kv.Value) > maxText {
			return wrong(fmt.Sprintf("--%s has %d bytes: give at most %d", kv.Key, len(kv.Value), maxText))
		}
	}
	longest := rank.KV{}
	for _, kv := range k.Settings {
		if len(kv.Value) > len(longest.Value) {
			longest = kv
		}
	}
	const others = 16 << 10 // addresses and the rest of the record
	if body, err := msgpack.Marshal(k); err != nil || len(body) > maxKnock-others {
		return wrong(fmt.Sprintf("the settings of this job have %d bytes, most of them --%s: at most %d can be compared, write ranges or a custom file", len(body), longest.Key, maxKnock-others))
	}
	return nil
}

// checkRecord bounds a record that came over the wire.
func checkRecord(r *rank.Record) error {
	switch {
	case r.Nonce == [16]byte{}:
		return fmt.Errorf("record without a nonce")
	case len(CheckHost(r.Host)) > 0:
		return fmt.Errorf("record: %s", CheckHost(r.Host))
	case len(r.Control) == 0 || len(r.Control) > maxControl:
		return fmt.Errorf("record: %d control addresses, 1 to %d are allowed", len(r.Control), maxControl)
	case len(r.BuildID) > maxText:
		return fmt.Errorf("record: build id of %d bytes", len(r.BuildID))
	case len(r.Own) > maxSettings:
		return fmt.Errorf("record: %d own settings, at most %d are allowed", len(r.Own), maxSettings)
	}
	for _, a := range r.Control {
		if !a.IsValid() || a.Port() == 0 || !zoneOK(a.Addr().Zone()) {
			return fmt.Errorf("record: control address %q", a)
		}
	}
	for _, kv := range r.Own {
		if len(kv.Key) > maxText || len(kv.Value) > maxText {
			return fmt.Errorf("record: own setting of more than %d bytes", maxText)
		}
	}
	return nil
}

// who names a process in messages: "n1 pid 4711".
func who(r *rank.Record) string { return fmt.Sprintf("%s pid %d", r.Host, r.PID) }

// mismatch is why a knock does not fit; all values as text.
type mismatch struct {
	what         string // "number of processes"
	theirs, ours string // at the knocking process, at the controller
	rest         string // more to say, "" if nothing
}

// told is the sentence for the refused process.
func (m mismatch) told(controller string) string {
	if m.theirs == "" && m.ours == "" {
		return fmt.Sprintf("the controller (%s) refused this process: %s", controller, m.rest)
	}
	return fmt.Sprintf("the controller (%s) refused this process: %s is %s here, %s at the controller%s", controller, m.what, m.theirs, m.ours, m.rest)
}

// notice is the sentence for the controller's user.
func (m mismatch) notice(who string) string {
	if m.theirs == "" && m.ours == "" {
		return fmt.Sprintf("refused %s: %s", who, m.rest)
	}
	return fmt.Sprintf("refused %s: %s is %s there, %s here%s", who, m.what, m.theirs, m.ours, m.rest)
}

// compare finds the first thing in which a knock differs from the controller's
// own. The build comes before the settings: another build may have others.
func compare(theirs, ours *knock) (mismatch, bool) {
	const same = "; start the same command everywhere"
	num := func(n int) string { return fmt.Sprint(n) }
	switch {
	case theirs.Proto != ours.Proto:
		return mismatch{"protocol version", num(theirs.Proto), num(ours.Proto), "; run the same program everywhere"}, true
	case theirs.Job != ours.Job:
		return mismatch{"job key", quote(theirs.JobKey), quote(ours.JobKey), "; another job uses this controller address: give it another port, or both the same --job if they are one"}, true
	case theirs.Record.BuildID != ours.Record.BuildID:
		return mismatch{"build id", quote(theirs.Record.BuildID), quote(ours.Record.BuildID), "; run the same binary everywhere"}, true
	case theirs.Procs != ours.Procs:
		return mismatch{"number of processes (-P)", num(theirs.Procs), num(ours.Procs), same}, true
	case theirs.K != ours.K:
		return mismatch{"number of ranks per process", num(theirs.K), num(ours.K), same}, true
	}
	if (theirs.Record.LauncherProc < 0) != (ours.Record.LauncherProc < 0) {
		return mismatch{"process number", number(theirs.Record.LauncherProc), number(ours.Record.LauncherProc), "; give every process one (--rank) or none"}, true
	}
	if key, their, our, more := diffSettings(theirs.Settings, ours.Settings); key != "" {
		rest := same
		if more > 0 {
			rest = fmt.Sprintf(" (and %s)%s", moreDiffer(more), same)
		}
		if !typed(key) {
			key = "setting " + key
		}
		return mismatch{key, their, our, rest}, true
	}
	return mismatch{}, false
}

// moreDiffer counts the settings that a refusal does not name.
func moreDiffer(n int) string {
	if n == 1 {
		return "1 more setting differs"
	}
	return fmt.Sprintf("%d more settings differ", n)
}

// number of a process as text.
func number(proc int) string {
	if proc < 0 {
		return "not given"
	}
	return fmt.Sprint(proc)
}

// decisive are the settings that others follow from, the first one first: who
// left out --topology m2n differs in M and N as well, and need not be told that.
// -S of cmtime brings transport and passes with it.
var decisive = []string{"-S", "transport", "topology"}

// typed says that a setting is an option of a face, named as it is typed.
func typed(key string) bool { return strings.HasPrefix(key, "-") }

// diffSettings names one key that differs, both values as text, and how many
// more do: the first of the decisive ones, else the first (in order) that is an
// option as it is typed, else the first whose values can be shown whole, else the
// first. Settings that follow from options are not counted beside one. Lists are
// sorted by key.
func diffSettings(theirs, ours []rank.KV) (key, their, our string, more int) {
	best, options := 0, 0
	note := func(k, t, o string) {
		if typed(k) {
			options++
		}
		weight := 1
		switch at := slices.Index(decisive, k); {
		case at >= 0:
			weight = 3 + len(decisive) - at
		case typed(k):
			weight = 3
		case !strings.HasSuffix(t, cut) && !strings.HasSuffix(o, cut):
			weight = 2
		}
		if best > 0 {
			more++
		}
		if weight > best {
			best, key, their, our = weight, k, t, o
		}
	}
	for len(theirs) > 0 || len(ours) > 0 {
		switch {
		case len(ours) == 0 || len(theirs) > 0 && theirs[0].Key < ours[0].Key:
			note(theirs[0].Key, quote(theirs[0].Value), "not set")
			theirs = theirs[1:]
		case len(theirs) == 0 || ours[0].Key < theirs[0].Key:
			note(ours[0].Key, "not set", quote(ours[0].Value))
			ours = ours[1:]
		default:
			if theirs[0].Value != ours[0].Value {
				note(theirs[0].Key, quote(theirs[0].Value), quote(ours[0].Value))
			}
			theirs, ours = theirs[1:], ours[1:]
		}
	}
	if typed(key) {
		more = options - 1
	}
	return key, their, our, more
}

// cut ends a value that is not shown whole.
const cut = "…"

// quote makes a foreign value safe to print on one line, shortened.
func quote(s string) string {
	const most = 80
	if len(s) > most {
		return fmt.Sprintf("%q", s[:most]) + cut
	}
	return fmt.Sprintf("%q", s)
}
