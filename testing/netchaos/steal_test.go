package netchaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// Four hosts are 10 ms apart. One of them needs 3 s for its share of a step, and the others a twentieth of
// a second: they take what it has not begun, unless they stand still for these seconds in each step. The
// weights are those of one peer, and the logs have each microbatch once. The long form compares steps of
// equal peers with stealing and without.
func TestStealingBetweenHosts(t *testing.T) {
	data, err := filepath.Abs("../../data/mnist")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(data); errors.Is(err, fs.ErrNotExist) {
		t.Skip("no MNIST in data/mnist: make data fetches it")
	}
	l := newFar(t, 4, path{mbit: 500, delay: 10 * time.Millisecond})
	const batch, micro = 256, 4
	program := []string{process.Example(t, "mnist"), "--data", data, "--model", "softmax", "--exact", "--balance", "equal", "--admit", "always",
		"--global-batch", fmt.Sprint(batch), "--microbatch", fmt.Sprint(micro)}
	s := stolenSteps{program: append(program, "--steps", "8"), slow: []string{"--pace", "1ms", "--slow", "0:50", "--steal", "far"},
		other: []string{"--pace", "1ms", "--steal", "far"}}
	want := s.train(t, l, 1)
	got := s.train(t, l, 4)
	if t.Logf("%d microbatches were stolen; the median step took %.1f ms", got.stolen, got.median()); got.stolen == 0 {
		t.Error("nothing was stolen")
	}
	if got.sha == "" || got.sha != want.sha {
		t.Errorf("weights %q, want those of one peer, %q", got.sha, want.sha)
	}
	for step, all := range got.parts {
		slices.SortFunc(all, func(a, b [2]int) int { return a[0] - b[0] })
		next := 0
		for _, r := range all {
			if r[0] == next {
				next = r[1]
			}
		}
		if next != batch/micro {
			t.Errorf("step %d has the microbatches %v", step, all)
		}
	}
	for range times(0, 3) {
		for _, how := range []string{"far", "off"} {
			paced := []string{"--pace", "5ms", "--steal", how}
			r := (&stolenSteps{program: append(program, "--steps", "40"), slow: paced, other: paced}).train(t, l, 4)
			t.Logf("equal peers, --steal %s: the median step took %.1f ms, %d stolen", how, r.median(), r.stolen)
		}
	}
}

// stolenSteps is a job of bin/mnist with one peer on each host.
type stolenSteps struct {
	program     []string
	slow, other []string // flags of the peer on the last host, and of the others
}

// stolenRun is what has come of it.
type stolenRun struct {
	sha    string
	stolen int
	took   []float64          // ms of each step
	parts  map[int64][][2]int // microbatches by step
}

// median returns the median time of a step.
func (s *stolenRun) median() float64 {
	slices.Sort(s.took)
	return s.took[len(s.took)/2]
}

// train runs the job on the first hosts of a lab.
func (s *stolenSteps) train(t *testing.T, l *lab, hosts int) *stolenRun {
	t.Helper()
	j, dir := process.NewJob(t), folder(t)
	log := func(host int) string { return filepath.Join(dir, fmt.Sprintf("events-%s-%d.jsonl", j.Name, host)) }
	begin := func(host int, args ...string) *process.Process {
		flags := s.other
		if host == 3 {
			flags = s.slow
		}
		args = slices.Concat([]string{process.Elrun()}, args, []string{"-n", "1", "--min-peers", fmt.Sprint(hosts), "--events", log(host), "--"}, s.program, flags)
		return j.Start(t, on(t, l.hosts[host], nil, args...))
	}
	all := []*process.Process{begin(0, "run", "--name", j.Name)}
	if hosts > 1 {
		var ticket string
		process.Until(t, "a ticket", func() bool {
			out, err := exec.CommandContext(t.Context(), "ip", "netns", "exec", l.hosts[0].namespace, process.Elrun(), "ticket", j.Name).Output()
			ticket = strings.TrimSpace(string(out))
			return err == nil
		})
		for host := 1; host < hosts; host++ {
			all = append(all, begin(host, "join", ticket))
		}
	}
	r := &stolenRun{parts: make(map[int64][][2]int)}
	for host, p := range all {
		if status := p.Wait(t); status != 0 {
			t.Fatalf("elrun on host %d ends with status %d:\n%s", host, status, p.Out.String()+p.Err.String())
		}
		text := p.Out.String() + p.Err.String()
		if m := regexp.MustCompile(`(?m)^done .* sha256=([0-9a-f]{64})$`).FindStringSubmatch(text); m != nil {
			r.sha = m[1]
		}
		r.read(t, log(host))
	}
	return r
}

// read adds the log of a host.
func (s *stolenRun) read(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var e event.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if b, ok := e.Body.(event.Step); ok {
			s.stolen += b.Stolen
			s.took = append(s.took, b.StepMS)
			s.parts[e.Step] = append(s.parts[e.Step], b.Microbatches...)
		}
	}
}
