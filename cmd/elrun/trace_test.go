package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/elrun/elrun/event"
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
		{[]string{"trace", empty + ".none", "-o", out}, "no file", statusFailed},
		{[]string{"trace", empty, "-o", out, "--for", "1s"}, "--for", statusUsage},
		{[]string{"trace", empty, "-o", out, "--for", "1s", "--steps", "2"}, "--for", statusUsage},
		{[]string{"trace", empty, empty + ".none", "-o", out}, "no such file", statusUsage},
		{[]string{"trace", empty, "-o", filepath.Join(out, "in no folder")}, "no such file", statusUsage},
		{[]string{"trace", empty, "-o", out}, "no events", statusFailed},
	} {
		if _, errs, status := command(t, c.args...); status != c.status || !strings.Contains(errs, c.want) {
			t.Errorf("%v: status %d, %q", c.args, status, errs)
		}
	}
}

// A trace of a running job has the steps after the first one that is reported, of all peers.
func TestStepRange(t *testing.T) {
	r := stepRange{steps: 2}
	var has []string
	for _, at := range []string{"b7", "a7", "a8", "a9", "b8", "a10", "b9", "a11", "b10"} {
		n, _ := strconv.ParseInt(at[1:], 10, 64)
		if r.complete() {
			t.Errorf("complete before %s", at)
		}
		if r.has(event.Event{Peer: at[:1], Step: n, Body: event.Step{}}) {
			has = append(has, at)
		}
	}
	if got := strings.Join(has, " "); got != "a8 a9 b8 b9" || !r.complete() || !r.has(event.Event{Body: event.Note{}}) {
		t.Errorf("the trace has %s", got)
	}
}

// Logs without an event give an error and no trace.
func TestTraceOfNothing(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	if err := os.WriteFile(log, []byte("no event\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"out.pftrace", "out.jsonl"} {
		to := filepath.Join(dir, name)
		if stdout, stderr, status := command(t, "trace", log, "-o", to); status != statusFailed || stdout != "" || !strings.HasPrefix(stderr, "elrun: no events in these logs: ") {
			t.Errorf("%s: status %d, %q, %q", name, status, stdout, stderr)
		}
		if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
}
