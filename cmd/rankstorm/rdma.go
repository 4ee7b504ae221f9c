package main

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"rankstorm/phases/runner"
	"rankstorm/rank"
	"rankstorm/transport"
	"rankstorm/transport/rdma"
)

// overRDMA is the transport that the flags below belong to.
const overRDMA = "rdma"

// rdmaFlags are the flags that only --transport rdma has, as typed.
type rdmaFlags struct {
	device     string
	gidIndex   int
	tos        int
	sl         int
	mtu        int
	retryCnt   int
	rnrRetry   int
	ackTimeout int
}

func (r *rdmaFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&r.device, "device", "", "rdma: use these devices: a `list` such as mlx5_0,mlx5_1, in turn over the ranks of a host; with -b: what its addresses must belong to")
	flags.Var(newOptional(&r.gidIndex), "gid-index", "rdma: `entry` of the port's GID table (default: RDMA CM's choice)")
	flags.Var(newOptional(&r.tos), "tos", "rdma: type of service of all packets, `0-255`; RoCE: traffic class")
	flags.Var(newOptional(&r.sl), "sl", "rdma: service level of data packets, `0-15`")
	flags.Var(newOptional(&r.mtu), "mtu", "rdma: path MTU in `bytes`: 256, 512, 1024, 2048 or 4096 (default: the path's)")
	flags.Var(newOptional(&r.retryCnt), "retry-cnt", "rdma: times that a packet is sent again, `0-7` (default 7)")
	flags.Var(newOptional(&r.rnrRetry), "rnr-retry", "rdma: times that a receiver may be found not ready, `0-7`, 7 = for ever (default 7)")
	flags.Var(newOptional(&r.ackTimeout), "ack-timeout", "rdma: `n`, 1-31: an acknowledgement is waited for 4.096 µs × 2^n; on RoCE RDMA CM's own timers follow it")
}

// numbers are the flags with the provider's names of what they set.
func (r *rdmaFlags) numbers() map[string]int {
	return map[string]int{
		rdma.OptionGIDIndex: r.gidIndex, rdma.OptionTOS: r.tos, rdma.OptionSL: r.sl, rdma.OptionMTU: r.mtu,
		rdma.OptionRetryCnt: r.retryCnt, rdma.OptionRNRRetry: r.rnrRetry, rdma.OptionAckTimeout: r.ackTimeout,
	}
}

// options are the provider's, nil if none was given.
func (r *rdmaFlags) options(over string) (map[string]string, error) {
	var options map[string]string
	values := r.numbers()
	for _, key := range slices.Sorted(maps.Keys(values)) {
		v := values[key]
		if v == unset {
			continue
		}
		flag := "--" + strings.ReplaceAll(key, "_", "-")
		if over != overRDMA {
			return nil, usagef("run: %s %d: only --transport rdma has such a thing, this is %s: leave it out", flag, v, over)
		}
		text := strconv.Itoa(v)
		if err := rdma.CheckOption(key, text); err != nil {
			return nil, usagef("run: %s %d: %w", flag, v, err)
		}
		if options == nil {
			options = make(map[string]string)
		}
		options[key] = text
	}
	if r.device != "" && over != overRDMA {
		return nil, usagef("run: --device %s: only --transport rdma has devices, this is %s: leave it out", r.device, over)
	}
	return options, nil
}

// rdmaInterfaces are the interfaces whose addresses the named devices have, one
// for each. Pure; devices are those of the host.
func rdmaInterfaces(list string, devices []rdma.Device, links []link) ([]string, error) {
	var chosen []string
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		at := slices.IndexFunc(devices, func(d rdma.Device) bool { return d.Name == name })
		if at < 0 {
			return nil, usagef("run: --device %s: this host has no such RDMA device: there are %s", name, deviceNames(devices))
		}
		iface := interfaceOf(devices[at], links)
		if iface == "" {
			return nil, usagef("run: --device %s: none of its ports is active on an interface that has an address: rankstorm devices shows them", name)
		}
		chosen = append(chosen, iface)
	}
	return chosen, nil
}

// interfaceOf is the first interface with an address that an active port of a device has.
func interfaceOf(d rdma.Device, links []link) string {
	for _, p := range d.Ports {
		if p.State != "ACTIVE" {
			continue
		}
		for _, name := range p.Netdevs {
			if slices.ContainsFunc(links, func(l link) bool { return l.name == name && len(l.addrs) > 0 }) {
				return name
			}
		}
	}
	return ""
}

func deviceNames(devices []rdma.Device) string {
	if len(devices) == 0 {
		return "none"
	}
	names := make([]string, len(devices))
	for i, d := range devices {
		names[i] = d.Name
	}
	return strings.Join(names, ", ")
}

// rdmaAddresses are the local addresses of a job over RDMA and where they came
// from: given, those of --device, else the first device that has one.
func (r *runFlags) rdmaAddresses(links []link) (bind []string, from string, err error) {
	switch {
	case r.device != "" && r.iface != "":
		return nil, "", usagef("run: --device and -B/--interface both choose the local address: give one of them")
	case r.bind != "" || r.iface != "":
		bind, err = chooseAddresses(r.iface, r.bind, r.ipv6, links)
		return bind, "", err
	case r.device != "":
		ifaces, err := rdmaInterfaces(r.device, rdma.DevicesIn(os.DirFS("/")), links)
		if err != nil {
			return nil, "", err
		}
		bind, err = chooseAddresses(strings.Join(ifaces, ","), "", r.ipv6, links)
		return bind, "--device", err
	}
	for _, d := range rdma.DevicesIn(os.DirFS("/")) {
		if iface := interfaceOf(d, links); iface != "" {
			bind, err = chooseAddresses(iface, "", r.ipv6, links)
			return bind, "device " + d.Name, err
		}
	}
	return nil, "", nil // the provider says what is missing
}

// probeRDMA asks the provider about every address before anything is joined, so
// that what this host lacks is said at once.
func (r *runFlags) probeRDMA(j *prepared) error {
	if err := rdma.Usable(); err != nil {
		return rank.Errorf(rank.KindResource, "run: %w", err)
	}
	if len(j.bind) == 0 {
		return rank.Errorf(rank.KindResource, "run: no RDMA device of this host has an address: ip addr add ADDRESS/PREFIX dev INTERFACE; rankstorm devices shows the interfaces")
	}
	devices := strings.Split(r.device, ",")
	for i, addr := range j.bind {
		if strings.Contains(addr, runner.LocalRank) {
			continue // known once the table is sealed; asked then
		}
		cfg := transport.Config{
			Clock: transport.NewClock(), Name: "probe", Bind: []string{addr}, Advertise: addr, Workers: j.spec.Threads,
			Device: strings.TrimSpace(devices[i%len(devices)]), Options: j.spec.Options,
		}
		err := j.provider.Probe(cfg)
		if err == nil && j.spec.Plays() {
			err = canMimic(j.provider, cfg)
		}
		if err != nil {
			return rank.Errorf(rank.KindResource, "run: %w", err)
		}
	}
	return nil
}

// canMimic asks an endpoint whether its device goes without queue pairs.
func canMimic(p transport.Provider, cfg transport.Config) error {
	ep, err := p.Open(cfg)
	if err != nil {
		return err
	}
	defer ep.Close()
	return ep.(transport.Mimicker).Mimic(transport.Mimic{On: true, First: 1, Count: 1})
}
