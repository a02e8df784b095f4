package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const kept = `    cost_test.go:9: machine phase=change members=10 ms=30 messages=120 beats=100
    scale_test.go:38: many phase=join members=100 count=1 ms=93 most_ms=93
    scale_test.go:38: many phase=join members=300 count=1 ms=120 most_ms=93
    scale_test.go:38: many phase=idle members=100 letters=38.5 bytes=3013 most=4380 peers=12 views=0 seconds=2.0
    scale_test.go:38: many phase=churn members=100 letters=40.5 bytes=4013 most=14380 peers=12 views=2 seconds=2.0
    scale_test.go:38: many phase=memory members=100 member_bytes=1000 view_bytes=0 encoded=77
--- PASS
`

func TestParse(t *testing.T) {
	all := parse([]byte(kept))
	if len(all) != 6 || all[0].phase != "machine change" || all[0].members != 10 || all[0].values["messages"] != 120 || all[3].values["letters"] != 38.5 {
		t.Errorf("got %v", all)
	}
	if all := parse([]byte("--- FAIL")); len(all) > 0 {
		t.Error("figures out of nothing")
	}
}

// An earlier run's figures are drawn, as valid XML.
func TestDraw(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	if err := os.WriteFile(log, []byte(kept), 0o644); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run([]string{"--log", log, dir}, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "letters 38") {
		t.Errorf("table:\n%s", out.String())
	}
	for name := range plots() {
		svg, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%v in:\n%s", err, svg)
			}
		}
	}
}

func TestNothingToDraw(t *testing.T) {
	if _, err := draw(plots()["scale.svg"], nil); err == nil {
		t.Error("a plot of nothing")
	}
	if err := run(nil, io.Discard); err == nil {
		t.Error("no usage error")
	}
}
