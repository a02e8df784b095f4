package netchaos

import (
	"fmt"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/process"
)

// A slow peer does not count as dead. Step times vary by a factor of five, one peer is five times
// slower than the others, and other processes load all cores. No peer is put out, and the first
// view lasts. The test runs on the real host, without namespaces.
func TestQuiet(t *testing.T) {
	quiet(t, 4, settings{pace: 20 * time.Millisecond, vary: 5, slow: "1"})
}

// The same holds for 32 peers, which are more than the cores.
func TestQuietMany(t *testing.T) {
	quiet(t, 32, settings{pace: 50 * time.Millisecond, vary: 5, slow: "1", batch: 80})
}

// quiet runs a job with the given number of peers while other processes load the machine. Even the
// short form runs longer than a peer may be silent.
func quiet(t *testing.T, peers int, set settings) {
	t.Helper()
	length := 5 * time.Second
	if flagged[bool]("long") {
		length = 10 * time.Minute
	}
	if m := flagged[float64]("minutes"); m > 0 {
		length = time.Duration(m * float64(time.Minute))
	}
	log := newJournal(t, filepath.Join(folder(t), "events-0.jsonl"))
	job := process.NewJob(t)
	e := job.Start(t, on(t, nil, append(set.env(), roleVariable+"=train"), process.Elrun(),
		"-n", fmt.Sprint(peers), "--listen", "local", "--name", job.Name, "--events", log.Path, process.Self(t)))
	process.Until(t, "the first step", func() bool { return log.Read(t).Step > 0 })
	for range runtime.NumCPU() {
		process.Start(t, on(t, nil, []string{roleVariable + "=burn", "GOMAXPROCS=1"}, process.Self(t)))
	}
	process.Pause(t, length)
	steps := log.Read(t).Step
	process.Until(t, "another step", func() bool { return log.Read(t).Step > steps })
	counts, shortest, longest := map[string]int{}, 0.0, 0.0
	for _, ev := range log.Read(t).Events {
		counts[ev.Body.Name()]++
		switch b := ev.Body.(type) {
		case event.View:
			if b.Reason != "start" || ev.Epoch != 1 || len(b.Members) != peers {
				t.Errorf("%v: view %d: %+v", ev.Time, ev.Epoch, b)
			}
		case event.Lost, event.Fenced, event.Quorum:
			t.Errorf("%v: %s: %+v", ev.Time, ev.Body.Name(), b)
		case event.Step:
			longest = max(longest, b.StepMS)
			if shortest == 0 || b.StepMS < shortest {
				shortest = b.StepMS
			}
		}
	}
	t.Logf("%v, %d steps of %.0f to %.0f ms; events: %v", length, steps, shortest, longest, counts)
	e.Signal(t, syscall.SIGTERM)
	e.Wait(t)
	newLedger(t, []*journal{log}).check(t, set)
}
