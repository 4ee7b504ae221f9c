package rdma

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"rankstorm/transport"
	"rankstorm/transport/rdma/internal/verbs"
)

// The keys of Config.Options beside those of the transport package. Values are decimal numbers.
const (
	OptionTOS        = "tos"         // type of service of data and CM packets, 0 to 255 (RoCE: traffic class)
	OptionSL         = "sl"          // service level of data packets, 0 to 15
	OptionMTU        = "mtu"         // path MTU in bytes: 256, 512, 1024, 2048 or 4096
	OptionRetryCnt   = "retry_cnt"   // transport retries, 0 to 7
	OptionRNRRetry   = "rnr_retry"   // receiver-not-ready retries, 0 to 7; 7 is for ever
	OptionAckTimeout = "ack_timeout" // 1 to 31: 4.096 µs × 2^n; on RoCE also the CM's own timers follow it
	OptionGIDIndex   = "gid_index"   // entry of the port's GID table, 0 to 255; must hold the bound address
)

const (
	defaultRetry   = 7
	defaultMinRNR  = 12 // 0.64 ms; the CM's own choice is 0, which is 655 ms
	defaultTimeout = 2000
	defaultRetries = 2
)

// option is a number that may be asked for.
type option struct {
	low, high int64
	says      string
	set       func(s *settings, v int64)
}

var options = map[string]option{
	OptionTOS:                      {0, 255, "0 to 255", func(s *settings, v int64) { s.knobs.TOS = int32(v) }},
	OptionSL:                       {0, 15, "0 to 15", func(s *settings, v int64) { s.knobs.SL = int32(v) }},
	OptionMTU:                      {256, 4096, "256, 512, 1024, 2048 or 4096", func(s *settings, v int64) { s.mtu = int(v) }},
	OptionRetryCnt:                 {0, 7, "0 to 7", func(s *settings, v int64) { s.knobs.RetryCnt = int32(v) }},
	OptionRNRRetry:                 {0, 7, "0 to 7, which is for ever", func(s *settings, v int64) { s.knobs.RNRRetry = int32(v) }},
	OptionAckTimeout:               {1, 31, "1 to 31", func(s *settings, v int64) { s.knobs.AckTimeout = int32(v) }},
	OptionGIDIndex:                 {0, 255, "0 to 255", func(s *settings, v int64) { s.knobs.GIDIndex = int32(v) }},
	transport.OptionResolveTimeout: {1, 600_000, "1 to 600000 ms", func(s *settings, v int64) { s.resolveMS = int(v) }},
	transport.OptionResolveRetries: {0, 1000, "0 to 1000", func(s *settings, v int64) { s.retries = int(v) }},
}

// CheckOption says what is wrong with an option's value, nil if nothing is.
func CheckOption(key, value string) error {
	o, ok := options[key]
	if !ok {
		return fmt.Errorf("unknown, known are %s", strings.Join(slices.Sorted(maps.Keys(options)), ", "))
	}
	v, err := strconv.ParseInt(value, 10, 64)
	if err != nil || v < o.low || v > o.high || key == OptionMTU && mtuEnum(int(v)) < 0 {
		return fmt.Errorf("give %s", o.says)
	}
	return nil
}

// mtuEnum is enum ibv_mtu of a number of bytes, -1 if there is none.
func mtuEnum(bytes int) int32 {
	for e := int32(1); e <= 5; e++ {
		if bytes == 128<<e {
			return e
		}
	}
	return -1
}

// settings are a checked Config.
type settings struct {
	local []netip.AddrPort // to bind to, in turn over the connections of all workers
	adv   netip.AddrPort
	// kernel's forms: of local, and adv behind them
	sockaddrs []verbs.Sockaddr
	device    string // "": whichever the addresses belong to

	knobs     verbs.Knobs
	mtu       int  // bytes, 0: the path's
	iwarp     bool // found by check
	resolveMS int
	retries   int
}

func parseConfig(cfg transport.Config) (settings, error) {
	bad := func(format string, args ...any) (settings, error) {
		return settings{}, fmt.Errorf("rdma: "+format, args...)
	}
	switch {
	case cfg.Clock == nil:
		return bad("Config.Clock is missing")
	case cfg.Workers < 1:
		return bad("%d workers: at least 1 is needed", cfg.Workers)
	}
	s := settings{
		device: cfg.Device, resolveMS: defaultTimeout, retries: defaultRetries,
		knobs: verbs.Knobs{TOS: -1, SL: -1, MTU: -1, AckTimeout: -1, GIDIndex: -1, RetryCnt: defaultRetry, RNRRetry: defaultRetry, MinRNR: defaultMinRNR},
	}
	for _, key := range slices.Sorted(maps.Keys(cfg.Options)) {
		if err := CheckOption(key, cfg.Options[key]); err != nil {
			return bad("%s %q: %w", key, cfg.Options[key], err)
		}
		v, err := strconv.ParseInt(cfg.Options[key], 10, 64)
		if err != nil {
			return bad("%w", err)
		}
		options[key].set(&s, v)
	}
	if s.mtu != 0 {
		s.knobs.MTU = mtuEnum(s.mtu)
	}
	var err error
	if s.adv, err = parseAddr(cfg.Advertise); err != nil {
		return bad("advertised address %q %w", cfg.Advertise, err)
	}
	for _, b := range cfg.Bind {
		a, err := parseAddr(b)
		switch {
		case err != nil:
			return bad("bind address %q %w", b, err)
		case a.Addr().Is4() != s.adv.Addr().Is4():
			return bad("bind address %s and advertised address %s are of different families: use IPv4 for both or IPv6 for both", b, cfg.Advertise)
		case a.Port() != 0:
			return bad("bind address %s: connections share it, so it takes no port", b)
		}
		s.local = append(s.local, a)
	}
	if len(s.local) == 0 { // the device has to be known before a connection is routed
		s.local = []netip.AddrPort{netip.AddrPortFrom(s.adv.Addr(), 0)}
	}
	for _, a := range append(slices.Clone(s.local), netip.AddrPortFrom(s.adv.Addr(), 0)) {
		if a.Addr().IsUnspecified() {
			return bad("address %s: RDMA needs an address of one device, a wildcard has none; `rankstorm devices` lists them", a.Addr())
		}
		sa, err := sockaddr(a)
		if err != nil {
			return bad("address %s %w", a.Addr(), err)
		}
		s.sockaddrs = append(s.sockaddrs, sa)
	}
	return s, nil
}
