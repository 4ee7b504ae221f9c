package hosts

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// masked is an output of cmtime without what differs from run to run: the figures
// of a row, of which other tests know more. Counts stay.
func masked(text string) string {
	rows := regexp.MustCompile(`(?m)^((?:full|create|bind|resolve|init|rtr|rts|cm|establish|disconnect|destroy)[a-z ]{1,12} )[ \d]{10}.*$`)
	return rows.ReplaceAllString(text, "$1 #")
}

// Two servers and two clients on four hosts, the controller's instance last; each
// prints its lines and its table, and the controller, a client, those of all.
func TestExampleCmtime(t *testing.T) {
	hostsUp(t, 4)
	dir := jobFolder(t)
	run := func(name, script string) *running {
		cmd := lab("hosts", "exec", name, example(t, "cmtime/"+script))
		cmd.Dir = dir
		return start(t, name, cmd)
	}
	all := []*running{run("n0", "server.sh"), run("n3", "client.sh"), run("n1", "server.sh")}
	all[0].says(t, "no controller at n2", 20*time.Second)
	all = append(all, run("n2", "client.sh"))
	waitAll(t, all, 0, time.Minute)
	var output strings.Builder
	for _, r := range all {
		output.WriteString("== " + r.name + "\n" + r.stdout.String())
	}
	path := example(t, "cmtime/expected.txt")
	if *rewrite {
		if err := os.WriteFile(path, []byte(output.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := masked(output.String()); got != masked(string(want)) {
		t.Errorf("printed\n%s\nwant, but for the figures\n%s", output.String(), want)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left in the working directory: %v, %v", left, err)
	}
}
