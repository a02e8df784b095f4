package netchaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// A process is killed while the next step has begun and sums are in flight on slow links. The other
// processes compute its part, each microbatch counts once, and they end with equal weights. The
// long form kills in 30 jobs.
func TestKillWhileStepsBeginEarly(t *testing.T) {
	parallel(t)
	l := newLab(t, 3)
	l.narrow(t, narrowLink)
	rng := rand.New(rand.NewPCG(rand.Uint64(), 1))
	for run := range times(2, 30) {
		victim, offset := rng.IntN(3), time.Duration(rng.Int64N(int64(100*time.Millisecond)))
		t.Run(fmt.Sprintf("%d/host=%d/%v", run, victim, offset), func(t *testing.T) { l.killEarly(t, victim, offset) })
	}
}

// The same holds if one host has two peers, which share memory, and another host has one peer. The
// first of the two peers is the leader of its host, and some runs kill the leader.
func TestKillBetweenUnequalHosts(t *testing.T) {
	parallel(t)
	l := newLab(t, 2)
	l.narrow(t, narrowLink)
	crowded := &lab{hosts: []*host{l.hosts[0], l.hosts[0], l.hosts[1]}}
	for run := range times(3, 30) {
		victim, offset := run%3, time.Duration(rand.Int64N(int64(100*time.Millisecond)))
		t.Run(fmt.Sprintf("%d/peer=%d/%v", run, victim, offset), func(t *testing.T) {
			if kinds := crowded.killEarly(t, victim, offset); !kinds["shm"] || !kinds["direct"] {
				t.Errorf("data took the paths %v, want shared memory within a host and direct connections between them", kinds)
			}
		})
	}
}

// killEarly kills the process of a host some time after the sixth step. It returns the kinds of paths that data took.
func (l *lab) killEarly(t *testing.T, victim int, offset time.Duration) (kinds map[string]bool) {
	t.Helper()
	task := overlapTask{Phase: both, Model: "cnn", Share: 16, Cuts: 2, Steps: 20}
	b, err := json.Marshal(task)
	if err != nil {
		t.Fatal(err)
	}
	dir := folder(t)
	h := onHosts(t, l, dir, "overlap", overlapVariable+"="+string(b), "GOMAXPROCS=1")
	process.Until(t, "the sixth step", func() bool { return h.log.Read(t).Step >= 6 })
	<-time.After(offset)
	h.all[victim].Kill()

	var weights string
	var journals []*journal
	for i, p := range h.all {
		journals = append(journals, newJournal(t, filepath.Join(dir, fmt.Sprintf("events-%d.jsonl", i))))
		if i == victim {
			continue
		}
		if status := p.Wait(t); status != 0 {
			t.Fatalf("host %d ended with status %d", i, status)
		}
		var got overlapResult
		if err := json.Unmarshal([]byte(p.Out.String()), &got); err != nil {
			t.Fatalf("host %d printed %q: %v", i, p.Out.String(), err)
		}
		if weights == "" {
			weights = got.SHA256
		}
		if got.SHA256 == "" || got.SHA256 != weights {
			t.Errorf("host %d has the weights %q, others %q", i, got.SHA256, weights)
		}
		if got.EarlySteps == 0 {
			t.Errorf("no step of host %d has begun early", i)
		}
	}
	book := newLedger(t, journals)
	for step := int64(1); step <= task.Steps; step++ {
		if n := len(book.digests[step]); n > 1 {
			t.Errorf("step %d has the digests %v", step, book.digests[step])
		}
		if err := once(book.parts[step], samplesOf(t, journals, step)*task.Cuts/task.Share, true); err != nil {
			t.Errorf("step %d: %v", step, err)
		}
	}
	return pathsOf(t, journals)
}

// pathsOf returns the kinds of paths that journals report.
func pathsOf(t *testing.T, journals []*journal) map[string]bool {
	t.Helper()
	kinds := make(map[string]bool)
	for _, j := range journals {
		for _, e := range j.Read(t).Events {
			if b, ok := e.Body.(event.Path); ok {
				kinds[b.Kind] = true
			}
		}
	}
	return kinds
}

// samplesOf returns the number of samples in a step.
func samplesOf(t *testing.T, journals []*journal, step int64) int {
	t.Helper()
	for _, j := range journals {
		for _, e := range j.Read(t).Events {
			if b, ok := e.Body.(event.Step); ok && e.Step == step {
				return b.Samples
			}
		}
	}
	t.Fatalf("nobody has reported step %d", step)
	return 0
}
