package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The logs of a job become a trace, and only the steps that are asked for.
func TestTrace(t *testing.T) {
	const log = "../../event/trace/testdata/job.jsonl.gz"
	file := filepath.Join(t.TempDir(), "run.pftrace")
	if out, errs, status := command(t, "trace", log, log, "-o", file, "--from", "1115", "--steps", "2", "--json"); status != 0 || !strings.Contains(out, `"events": 526`) {
		t.Fatalf("status %d, output %q, errors %q", status, out, errs)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"step 1114": 0, "step 1115": 4, "step 1116": 4, "step 1117": 0} { // names of slices are plain text in the file
		if got := bytes.Count(b, []byte(name)); got != want {
			t.Errorf("%s: %d slices, want %d", name, got, want)
		}
	}
}

// What cannot be traced is refused.
func TestTraceRefused(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.jsonl")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	for _, c := range []struct {
		args   []string
		want   string
		status int
	}{
		{[]string{"trace", empty}, "-o", statusUsage},
		{[]string{"trace", empty, "-o", out, "--steps", "-1"}, "--steps", statusUsage},
		{[]string{"trace", empty, "-o", "-", "--json"}, "standard output", statusUsage},
		{[]string{"trace", empty + ".none", "-o", out}, "no such file", statusUsage},
		{[]string{"trace", empty, "-o", filepath.Join(out, "in no folder")}, "no such file", statusUsage},
		{[]string{"trace", empty, "-o", out}, "no events", statusFailed},
	} {
		if _, errs, status := command(t, c.args...); status != c.status || !strings.Contains(errs, c.want) {
			t.Errorf("%v: status %d, %q", c.args, status, errs)
		}
	}
}
