package sysfs

import (
	"io/fs"
	"path"
	"strconv"
)

// Counters of one port. They count for all processes of the machine that use it,
// from the moment the device came up; what a driver does not count is not there.
type Counters struct {
	Device string
	Port   int
	// CM by group and message: "cm_tx_msgs/req", "cm_tx_retries/rep",
	// "cm_rx_msgs/drep", "cm_rx_duplicates/req", "cm_rx_msgs/mra" … Received
	// messages count on receipt, sent ones and retries when their transaction ends.
	CM map[string]int64
	// HW are the driver's own: "out_of_buffer", "rcvd_rnr_err", …
	HW map[string]int64
}

// groups of CM counters: directories of a port. iWARP has none.
var groups = []string{"cm_tx_msgs", "cm_tx_retries", "cm_rx_msgs", "cm_rx_duplicates"}

// ReadCounters reads the counters of all ports of all devices, by name and number.
func ReadCounters(fsys fs.FS) []Counters {
	var list []Counters
	for _, device := range Names(fsys) {
		for _, number := range names(fsys, path.Join(class, device, "ports")) {
			n, err := strconv.Atoi(number)
			if err != nil || n < 1 {
				continue
			}
			dir := path.Join(class, device, "ports", number)
			c := Counters{Device: device, Port: n, CM: map[string]int64{}, HW: map[string]int64{}}
			for _, group := range groups {
				numbers(fsys, dir, group, group+"/", c.CM)
			}
			numbers(fsys, dir, "hw_counters", "", c.HW)
			list = append(list, c)
		}
	}
	return list
}

// numbers adds the files of a directory that hold a number.
func numbers(fsys fs.FS, dir, group, prefix string, to map[string]int64) {
	for _, name := range names(fsys, path.Join(dir, group)) {
		if name == "lifespan" {
			continue // how long hw_counters are kept, in ms; a setting
		}
		if v, err := strconv.ParseInt(word(fsys, dir, group+"/"+name), 10, 64); err == nil {
			to[prefix+name] = v
		}
	}
}
