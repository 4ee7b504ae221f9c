package main

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"rankstorm/collect"
	"rankstorm/transport"
	"rankstorm/transport/rdma"
)

// devicesFlags are the flags of devices.
type devicesFlags struct{ json bool }

func (d *devicesFlags) register(flags *pflag.FlagSet) {
	flags.BoolVar(&d.json, "json", false, "print the same facts as JSON")
}

func (a *app) devicesCommand() *cobra.Command {
	var flags devicesFlags
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "Print what this machine can use: transports, RDMA devices, limits",
		Long: `devices says for each value of --transport whether it is usable on this machine,
and if not, why and what to do. It lists the RDMA devices with ports, addresses
and GIDs, what they hold now and can hold at most, and the limits of the machine
that matter to large jobs. It needs no RDMA library, and opens no connection.

  rankstorm devices
  srun -N 64 --ntasks-per-node 1 rankstorm devices --json

Maximal figures are known only where the RDMA libraries can be used. What is
wrong does not change the exit code: it is 0.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.env.apply("devices", cmd.Flags()); err != nil {
				return err
			}
			r := surveyDevices()
			if flags.json {
				return writeJSON(a.text, r)
			}
			return a.print(r.text())
		},
	}
	flags.register(cmd.Flags())
	return cmd
}

// deviceReport is what devices prints. What is not known is null or left out.
type deviceReport struct {
	Providers []providerReport `json:"providers"`
	Devices   []deviceEntry    `json:"devices"`
	Limits    []limitEntry     `json:"limits"`
}

type providerReport struct {
	Name   string   `json:"name"`
	Usable bool     `json:"usable"`
	Reason *string  `json:"reason"` // why it is not, and what to do
	Notes  []string `json:"notes"`  // what may spoil a large job
}

type deviceEntry struct {
	Name     string           `json:"name"`
	Protocol string           `json:"protocol"`
	Firmware string           `json:"firmware"`
	NodeGUID string           `json:"node_guid"`
	Error    *string          `json:"error"` // why the libraries cannot open it
	Ports    []portEntry      `json:"ports"`
	InUse    map[string]int64 `json:"in_use"` // by all processes, in the kernel's words
	Max      map[string]int64 `json:"max"`
}

type portEntry struct {
	Port      int           `json:"port"`
	State     string        `json:"state"`
	Physical  string        `json:"physical_state"`
	LinkLayer string        `json:"link_layer"`
	Rate      string        `json:"rate"`
	MTU       *int          `json:"mtu_bytes"`
	MTUMax    *int          `json:"mtu_max_bytes"`
	LID       *uint16       `json:"lid"`
	Netdevs   []netdevEntry `json:"netdevs"`
	GIDs      []gidEntry    `json:"gids"`
	GIDRoom   int           `json:"gid_table_entries"`
}

type netdevEntry struct {
	Name      string   `json:"name"`
	Addresses []string `json:"addresses"`
}

type gidEntry struct {
	Index   int    `json:"index"`
	Address string `json:"address"`
	Type    string `json:"type"`
	Netdev  string `json:"netdev"`
}

type limitEntry struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// survey is what was found on a machine.
type survey struct {
	tcp, rdma error // why they are not usable
	notes     []string
	devices   []rdma.Device
	addresses map[string][]string // by interface
	limits    []rdma.Limit
}

// surveyDevices asks this machine.
func surveyDevices() deviceReport {
	s := survey{notes: rdma.Notes(), addresses: addressesOfInterfaces(), limits: append(processLimits(), rdma.Limits()...)}
	s.devices, s.rdma = rdma.Devices()
	s.tcp = providers["tcp"]().Probe(transport.Config{Clock: transport.NewClock(), Advertise: "127.0.0.1", Workers: 1})
	return s.report()
}

// report puts together what was found.
func (s survey) report() deviceReport {
	provider := func(name string, why error, notes []string) providerReport {
		p := providerReport{Name: name, Usable: why == nil, Notes: append([]string{}, notes...)}
		if why != nil {
			reason := oneLine(strings.TrimPrefix(why.Error(), name+": "))
			p.Reason = &reason
		}
		return p
	}
	r := deviceReport{
		Providers: []providerReport{provider("tcp", s.tcp, nil), provider("rdma", s.rdma, s.notes)},
		Devices:   []deviceEntry{}, Limits: []limitEntry{},
	}
	for _, d := range s.devices {
		e := deviceEntry{Name: d.Name, Protocol: d.Protocol, Firmware: d.Firmware, NodeGUID: d.NodeGUID, Ports: []portEntry{}, InUse: d.InUse}
		if d.Err != nil {
			text := d.Err.Error()
			e.Error = &text
		}
		if l := d.Limits; l != nil {
			e.Max = map[string]int64{
				"qp": int64(l.QPs), "cq": int64(l.CQs), "mr": int64(l.MRs), "pd": int64(l.PDs), "ah": int64(l.AHs), "qp_wr": int64(l.QPWorkRequests),
				"sge": int64(l.SGEs), "cqe": int64(l.CQEntries), "reads_as_initiator": int64(l.ReadsAsInitiator), "reads_as_target": int64(l.ReadsAsTarget),
				"mr_bytes": int64(min(l.MRSize, math.MaxInt64)),
			}
		}
		for _, p := range d.Ports {
			e.Ports = append(e.Ports, portOfDevice(d, p, s.addresses))
		}
		r.Devices = append(r.Devices, e)
	}
	for _, l := range s.limits {
		r.Limits = append(r.Limits, limitEntry(l))
	}
	return r
}

func portOfDevice(d rdma.Device, p rdma.Port, addresses map[string][]string) portEntry {
	e := portEntry{
		Port: p.Number, State: p.State, Physical: p.Physical, LinkLayer: p.LinkLayer, Rate: p.Rate,
		Netdevs: []netdevEntry{}, GIDs: []gidEntry{}, GIDRoom: p.GIDTableCapacity,
	}
	if p.LinkLayer == "InfiniBand" {
		e.LID = &p.LID
	}
	if i := p.Number - 1; i < len(d.MTUs) && d.MTUs[i].Active > 0 {
		e.MTU, e.MTUMax = &d.MTUs[i].Active, &d.MTUs[i].Max
	}
	for _, name := range p.Netdevs {
		e.Netdevs = append(e.Netdevs, netdevEntry{name, append([]string{}, addresses[name]...)})
	}
	for _, g := range p.GIDs {
		e.GIDs = append(e.GIDs, gidEntry{g.Index, g.Addr.String(), g.Type, g.Netdev})
	}
	return e
}

// addressesOfInterfaces are the IP addresses of this machine by interface.
func addressesOfInterfaces() map[string][]string {
	out := map[string][]string{}
	interfaces, _ := net.Interfaces() // without them the GIDs still tell the addresses
	for _, i := range interfaces {
		addresses, _ := i.Addrs()
		for _, a := range addresses {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				out[i.Name] = append(out[i.Name], p.Addr().String())
			}
		}
	}
	return out
}

// processLimits are those of this process, as a child of the shell has them.
func processLimits() []rdma.Limit {
	var list []rdma.Limit
	for _, l := range []struct {
		name     string
		resource int
	}{{"locked memory (ulimit -l)", unix.RLIMIT_MEMLOCK}, {"file descriptors (ulimit -Hn)", unix.RLIMIT_NOFILE}} {
		var limit unix.Rlimit
		if unix.Getrlimit(l.resource, &limit) != nil {
			continue
		}
		value := limit.Cur
		if l.resource == unix.RLIMIT_NOFILE {
			value = limit.Max // a job raises the soft one by itself
		}
		text := strconv.FormatUint(value, 10)
		switch {
		case value == unix.RLIM_INFINITY:
			text = "unlimited"
		case l.resource == unix.RLIMIT_MEMLOCK:
			text += " bytes"
		}
		list = append(list, rdma.Limit{Name: l.name, Value: text})
	}
	return list
}

// text is the report for people.
func (r deviceReport) text() string {
	var b strings.Builder
	for _, p := range r.Providers {
		state := "usable"
		if p.Reason != nil {
			state = "not usable: " + *p.Reason
		}
		fmt.Fprintf(&b, "%-8s  %s\n", p.Name, state)
		for _, n := range p.Notes {
			fmt.Fprintf(&b, "%-8s  note: %s\n", "", n)
		}
	}
	for _, d := range r.Devices {
		b.WriteString("\n")
		d.text(&b)
	}
	if len(r.Limits) > 0 {
		b.WriteString("\nlimits\n")
		tab := tabwriter.NewWriter(&b, 0, 0, 3, ' ', 0)
		for _, l := range r.Limits {
			fmt.Fprintf(tab, "  %s\t%s\n", l.Name, l.Value)
		}
		_ = tab.Flush() // a strings.Builder takes everything
	}
	return b.String()
}

func (d deviceEntry) text(b *strings.Builder) {
	head := []string{d.Name, d.Protocol}
	if d.Firmware != "" {
		head = append(head, "firmware "+d.Firmware)
	}
	if d.NodeGUID != "" {
		head = append(head, "node "+d.NodeGUID)
	}
	b.WriteString(strings.Join(slices.DeleteFunc(head, func(s string) bool { return s == "" }), " · ") + "\n")
	line := func(name string, parts ...string) {
		parts = slices.DeleteFunc(parts, func(s string) bool { return s == "" })
		if len(parts) > 0 {
			fmt.Fprintf(b, "  %-10s  %s\n", name, strings.Join(parts, " · "))
		}
	}
	if d.Error != nil {
		line("error", *d.Error)
	}
	for _, p := range d.Ports {
		parts := []string{p.State, p.Physical, p.LinkLayer, p.Rate}
		if p.LID != nil {
			parts = append(parts, fmt.Sprintf("LID %d", *p.LID))
		}
		if p.MTU != nil {
			parts = append(parts, fmt.Sprintf("MTU %d of %d", *p.MTU, *p.MTUMax))
		}
		line(fmt.Sprintf("port %d", p.Port), parts...)
		for _, n := range p.Netdevs {
			line("netdev", n.Name, strings.Join(n.Addresses, ", "))
		}
		for _, g := range p.GIDs {
			line(fmt.Sprintf("GID %d", g.Index), g.Address, g.Type, g.Netdev)
		}
	}
	line("in use", d.holds()...)
	if d.Max != nil {
		line("a QP", collect.FormatCount(d.Max["qp_wr"])+" work requests", collect.FormatCount(d.Max["sge"])+" segments each",
			fmt.Sprintf("%d reads as initiator, %d as target", d.Max["reads_as_initiator"], d.Max["reads_as_target"]))
		line("others", collect.FormatCount(d.Max["cqe"])+" entries of a CQ", collect.FormatCount(d.Max["ah"])+" address handles", regionBound(d.Max["mr_bytes"]))
	}
}

// regionBound tells the largest region; software devices have no bound.
func regionBound(bytes int64) string {
	if bytes > 1<<60 {
		return "regions of any size"
	}
	return "regions of " + collect.FormatBytes(bytes)
}

// resourceKinds in the order they are printed, by the kernel's names.
var resourceKinds = []struct{ key, name string }{{"qp", "QPs"}, {"cq", "CQs"}, {"mr", "MRs"}, {"pd", "PDs"}, {"cm_id", "CM ids"}, {"ctx", "contexts"}, {"srq", "SRQs"}}

// holds tells each kind with what is held and what can be: "QPs 3 of 1,048,560".
func (d deviceEntry) holds() []string {
	var parts []string
	for _, k := range resourceKinds {
		used, known := d.InUse[k.key]
		most, bounded := d.Max[k.key]
		switch {
		case known && bounded:
			parts = append(parts, fmt.Sprintf("%s %s of %s", k.name, collect.FormatCount(used), collect.FormatCount(most)))
		case known:
			parts = append(parts, fmt.Sprintf("%s %s", k.name, collect.FormatCount(used)))
		case bounded:
			parts = append(parts, fmt.Sprintf("%s at most %s", k.name, collect.FormatCount(most)))
		}
	}
	return parts
}
