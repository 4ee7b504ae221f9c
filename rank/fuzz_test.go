package rank

import "testing"

// Values of --offsets and of range policies.
func FuzzOffsets(f *testing.F) {
	for _, s := range []string{"1,2,4", "1-4", "0-15:2", "all", "", "-1", "9223372036854775807", "0-9223372036854775807:1", "1-0", "1:0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		const size = 7
		if _, err := ParseRangePolicy(text); err != nil && ExitCode(err) != 2 {
			t.Errorf("%q: %v is no usage error", text, err)
		}
		offsets, err := parseOffsets(text, size)
		if err != nil {
			if ExitCode(err) != 2 {
				t.Errorf("%q: %v is no usage error", text, err)
			}
			return
		}
		seen := map[int]bool{}
		for _, o := range offsets {
			if o < 1 || o >= size || seen[o] {
				t.Fatalf("%q: offsets %v", text, offsets)
			}
			seen[o] = true
		}
	})
}
