package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// Every key that plan and devices print as JSON stands in docs/JSON.md.
func TestJSONIsDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "JSON.md"))
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	var walk func(of reflect.Type)
	walk = func(of reflect.Type) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice:
			walk(of.Elem())
		case reflect.Struct:
			for f := range of.Fields() {
				if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key != "" {
					keys[key] = true
				}
				walk(f.Type)
			}
		}
	}
	walk(reflect.TypeFor[forecast]())
	walk(reflect.TypeFor[deviceReport]())
	if !keys["tree_depth"] || !keys["plan_left_out"] || !keys["gid_table_entries"] {
		t.Fatalf("keys are missed: %v", keys)
	}
	for key := range keys {
		if !strings.Contains(string(page), "`"+key+"`") && !strings.Contains(string(page), key+"[]`") {
			t.Errorf("docs/JSON.md does not explain %s", key)
		}
	}
}
