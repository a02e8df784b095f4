package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"testing"
)

func TestParse(t *testing.T) {
	got, err := parse([]byte("    cost_test.go:9: scale members=10 ticks=3 messages=120 beats=100\n--- PASS\n"))
	if want := (figure{10, 3, 120, 100}); err != nil || got != want {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := parse([]byte("--- FAIL")); err == nil {
		t.Error("figures out of nothing")
	}
}

func TestPlotIsXML(t *testing.T) {
	svg := plot([]figure{{10, 3, 120, 100}, {100, 4, 1300, 1000}, {1000, 6, 14000, 10000}})
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%v in:\n%s", err, svg)
		}
	}
}

func TestUsage(t *testing.T) {
	if err := run(nil, io.Discard); err == nil {
		t.Error("no usage error")
	}
}
