package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/elrun/elrun/cmd/elrun/bench"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/testing/process"
)

func TestStatus(t *testing.T) {
	e := start(t, "loop", 3)
	e.Expect(t, "[0] sums", "[1] sums", "[2] sums")
	stdout, _, status := process.Command(t, "status", e.job.Name, "--json")
	var s launch.Status
	if err := json.Unmarshal([]byte(stdout), &s); err != nil || status != 0 {
		t.Fatalf("status %d, %v: %q", status, err, stdout)
	}
	if s.Job != e.job.Name || s.Epoch != 1 || len(s.Members) != 3 || len(s.WaitingFor) != 0 {
		t.Errorf("got %+v", s)
	}
	for i, m := range s.Members {
		if m.Rank != i || m.Index != i || m.State != "running" || m.ID != e.field(t, i, "id") {
			t.Errorf("member %d is %+v", i, m)
		}
	}
	if stdout, _, _ := process.Command(t, "status", "--peers", e.job.Name); strings.Count(stdout, "running") != 3 {
		t.Errorf("table:\n%s", stdout)
	}
	for _, flag := range []string{"--peers=false", "--paths"} { // the job, its progress, the head of the table, and one line for each host: all peers are on this one
		if stdout, _, _ := process.Command(t, "status", flag, e.job.Name); strings.Count(stdout, "\n") != 4 {
			t.Errorf("%s:\n%s", flag, stdout)
		}
	}
	if stdout, _, _ := process.Command(t, "ps"); !strings.Contains(stdout, e.job.Name) {
		t.Errorf("ps does not list the job:\n%s", stdout)
	}
	var jobs []launch.Status
	if stdout, _, _ := process.Command(t, "ps", "--json"); json.Unmarshal([]byte(stdout), &jobs) != nil || len(jobs) == 0 {
		t.Errorf("ps --json: %s", stdout)
	}
	if _, stderr, status := process.Command(t, "--name", e.job.Name, "true"); status != 2 || !strings.Contains(stderr, "running already") {
		t.Errorf("a second job of that name: status %d, %q", status, stderr)
	}
	e.Signal(t, syscall.SIGINT)
	e.Wait(t)
	stdout, _, status = process.Command(t, "status", e.job.Name)
	if status != 0 || !strings.Contains(stdout, "job "+e.job.Name+"  interrupted by signal 2 (interrupt) with status 130") {
		t.Errorf("after the end: status %d, %q", status, stdout)
	}
	stdout, _, status = process.Command(t, "status", e.job.Name, "--json")
	if err := json.Unmarshal([]byte(stdout), &s); err != nil || status != 0 || s.Ended == nil || s.Ended.Status != 130 || len(s.Members) != 0 {
		t.Errorf("after the end: %v, status %d: %q", err, status, stdout)
	}
	if _, stderr, status := process.Command(t, "stop", e.job.Name); status != 1 || !strings.Contains(stderr, "no such job") {
		t.Errorf("stop after the end: status %d, %q", status, stderr)
	}
}

func TestBench(t *testing.T) {
	for _, name := range bench.Collectives() {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, status := process.Command(t, "bench", name, "-n", "3", "--sizes", "4,100K", "--iters", "3", "--json")
			if status != 0 {
				t.Fatalf("status %d: %s", status, stderr)
			}
			rows := 0
			for line := range strings.Lines(stdout) {
				var r bench.Result
				if err := json.Unmarshal([]byte(line), &r); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				if r.Collective != name || r.N != 3 || r.Wrong != 0 || r.Iters != 3 {
					t.Errorf("got %+v", r)
				}
				rows++
			}
			if want := map[bool]int{true: 1, false: 2}[name == "barrier"]; rows != want {
				t.Errorf("%d rows, want %d", rows, want)
			}
		})
	}
}

func TestBenchTable(t *testing.T) {
	stdout, stderr, status := process.Command(t, "bench", "allreduce", "-n", "2", "--sizes", "1K", "--iters", "2",
		"--dtype", "bfloat16", "--op", "max", "--algorithm", "ring", "--in-place")
	if status != 0 || strings.Count(stdout, "\n") != 3 || !strings.Contains(stdout, "busbw") {
		t.Errorf("status %d, stderr %q, stdout:\n%s", status, stderr, stdout)
	}
	if _, stderr, status := process.Command(t, "bench", "allreduce", "-n", "2", "--op", "nonsense"); status != 1 || stderr == "" {
		t.Errorf("unknown operation: status %d, stderr %q", status, stderr)
	}
}

// elrun status names the event log of a job, while it runs and after its end.
func TestStatusNamesLog(t *testing.T) {
	log := filepath.Join(t.TempDir(), "run.jsonl")
	e := start(t, "train", 1, "--events", log)
	e.expectRanks(t, 1)
	shows := func() {
		t.Helper()
		if out, stderr, status := process.Command(t, "status", e.job.Name); status != 0 || !strings.Contains(out, "\nevent log "+log+"\n") {
			t.Errorf("status %d, %q:\n%s", status, stderr, out)
		}
		if s := e.status(t); s.Log != log {
			t.Errorf("JSON names %q", s.Log)
		}
	}
	shows()
	if err := os.WriteFile(e.finish, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if status := e.Wait(t); status != 0 {
		t.Errorf("the job: status %d", status)
	}
	shows()
}
