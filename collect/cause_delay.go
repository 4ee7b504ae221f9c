package collect

import (
	"fmt"
	"slices"
	"strings"

	"rankstorm/phases"
)

// planted says of causes that a rank was held by --delay, which the settings know: nobody has to look for load there.
func planted(d *Document, list []Cause) {
	var delays []phases.Delay
	for text := range strings.FieldsSeq(d.Settings["delay"]) {
		if one, err := phases.ParseDelay(text); err == nil {
			delays = append(delays, one)
		}
	}
	for i := range list {
		c := &list[i]
		if c.Kind == "uneven" {
			held := slices.ContainsFunc(delays, func(one phases.Delay) bool { return string(one.Phase) == c.Phase })
			if held {
				c.Evidence += "; --delay held some of them"
			}
			continue
		}
		if c.Kind != "straggler" && c.Kind != "stall" {
			continue
		}
		at := slices.IndexFunc(delays, func(one phases.Delay) bool { return one.Rank == *c.Rank && string(one.Phase) == c.Phase })
		if at < 0 {
			continue
		}
		one := delays[at]
		c.Evidence += fmt.Sprintf("; --delay was to hold rank %d for %s", one.Rank, FormatDuration(int64(one.For)))
		if *c.ValueNS < 2*int64(one.For) { // more than that has another reason
			c.Fix = fmt.Sprintf("it was planted: leave out --delay %s", one)
		}
	}
}
