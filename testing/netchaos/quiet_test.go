package netchaos

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/elrun/elrun/event"
)

// Slow is not dead: while steps vary by 5x, one peer is 5x slower than the others and
// both cores are loaded, nobody is put out and the view stays the first. This needs
// no network but that of the host itself.
func TestQuiet(t *testing.T) {
	length := 15 * time.Second
	if flagged[bool]("long") {
		length = 10 * time.Minute
	}
	if m := flagged[float64]("minutes"); m > 0 {
		length = time.Duration(m * float64(time.Minute))
	}
	const peers = 4
	set := settings{pace: 20 * time.Millisecond, vary: 5, slow: "1"}
	log := &journal{path: filepath.Join(folder(t), "events-0.jsonl")}
	e := start(t, nil, append(set.env(), roleVariable+"=train"), os.Getenv(elrunVariable),
		"-n", fmt.Sprint(peers), "--listen", "local", "--name", jobName(t), "--events", log.path, self(t))
	until(t, "the first step", func() bool { step, _ := log.step(t); return step > 0 })
	for range runtime.NumCPU() {
		start(t, nil, []string{roleVariable + "=burn", "GOMAXPROCS=1"}, self(t))
	}
	after(t, length)
	steps, _ := log.step(t)
	until(t, "another step", func() bool { step, _ := log.step(t); return step > steps })
	counts, shortest, longest := map[string]int{}, 0.0, 0.0
	for _, ev := range log.events(t) {
		counts[ev.Body.Name()]++
		switch b := ev.Body.(type) {
		case event.View:
			if b.Reason != "start" || ev.Epoch != 1 {
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
	e.signal(t, syscall.SIGTERM)
	e.wait(t)
	newLedger(t, []*journal{log}).check(t)
}
