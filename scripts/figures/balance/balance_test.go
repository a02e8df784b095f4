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

	"github.com/elrun/elrun/scripts/balsim"
)

// docs/balancing.md equals the output of the current code, and its plots exist.
func TestDocsAreCurrent(t *testing.T) {
	text, err := report("../../..", "balancing")
	if err != nil {
		t.Fatal(err)
	}
	docs, err := os.ReadFile("../../../docs/balancing.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, docs) {
		t.Error("docs/balancing.md is out of date: run make balance-report")
	}
	lineage, err := os.ReadFile("../../../docs/lineage.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "Gradient codes reach ")
	why, _, _ := strings.Cut(rest, "\n")
	if !strings.Contains(strings.Join(strings.Fields(string(lineage)), " "), why) {
		t.Errorf("docs/lineage.md does not say that gradient codes reach %s", why)
	}
	plotted, err := traces("../../..", plotPeers, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, trace := range plotted {
		if _, err := os.Stat(filepath.Join("../../../docs/balancing", file(trace))); err != nil {
			t.Error(err)
		}
	}
	if r := string(ranking(text)); !strings.HasPrefix(r, "| policy | mean | homogeneous |") || strings.Count(r, "\n") != 7 {
		t.Errorf("ranking:\n%s", r)
	}
}

func TestPlotIsAnImage(t *testing.T) {
	name := filepath.Join(t.TempDir(), "step.svg")
	if err := plotTrace(balsim.Step(4, 20, 5, 15), name); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"<svg", "lbbsp-cpu: shares", "equal: ms a step"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("no %q in the plot", want)
		}
	}
}

func TestUsage(t *testing.T) {
	if err := run(nil, io.Discard); err == nil || !strings.HasPrefix(err.Error(), "usage:") {
		t.Errorf("error %v", err)
	}
}
