package rank

import "net/netip"

// KV is one job-wide or own setting as text. Lists of KV are sorted by key.
type KV struct {
	Key   string `msgpack:"k" json:"key"`
	Value string `msgpack:"v" json:"value"`
}

// Record is what one process tells the others about itself while gathering.
type Record struct {
	Nonce        [16]byte         `msgpack:"nonce"`   // random, new at every start: tells two starts apart
	Host         string           `msgpack:"host"`    // short host name, or the override
	HostID       [16]byte         `msgpack:"host_id"` // boot id; the same on processes that share a kernel
	PID          int              `msgpack:"pid"`
	Start        uint64           `msgpack:"start"`         // start time of the process, clock ticks since boot
	LauncherProc int              `msgpack:"launcher_proc"` // process number given by flag or launcher, -1 unknown
	LocalIndex   int              `msgpack:"local_index"`   // index within the host given by the launcher, -1 unknown
	Control      []netip.AddrPort `msgpack:"control"`       // where the control link listens, best first
	BuildID      string           `msgpack:"build_id"`
	CPUs         int              `msgpack:"cpus"`
	Own          []KV             `msgpack:"own,omitempty"` // per-process settings (bind, output …), not compared
}
