package stalls

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/event"
)

func TestMain(m *testing.M) {
	flag.Int("seeds", 5, "runs of each cause")
	flag.Uint64("first", 1, "seed of the first of them")
	flag.Parse()
	os.Exit(m.Run())
}

// option returns the value of a flag of TestMain.
func option[T any](name string) T {
	return flag.Lookup(name).Value.(flag.Getter).Get().(T)
}

// For each cause of a stall, the other members name the member that causes it.
func TestCauses(t *testing.T) {
	seeds, first := option[int]("seeds"), option[uint64]("first")
	table := []string{fmt.Sprintf("%-30s %6s %6s %8s %10s %10s", "cause", "right", "wrong", "missing", "median", "worst")}
	for _, c := range causes() {
		t.Run(c.name, func(t *testing.T) {
			var all tally
			for seed := first; seed < first+uint64(seeds); seed++ {
				one := runWith(t, c, seed)
				for i, note := range one.notes {
					one.notes[i] = fmt.Sprintf("seed %d: %s", seed, note)
				}
				all.add(one)
			}
			table = append(table, all.row(c.name))
			if n := all.wrong + all.missing; n*100 > n+all.right {
				t.Errorf("%d of %d members did not name the culprit, and only it, within %v:\n%s",
					n, n+all.right, promised, strings.Join(all.notes, "\n"))
			}
		})
	}
	t.Log("\n" + strings.Join(table, "\n"))
}

// runWith runs a job in which the cause affects one member.
func runWith(t *testing.T, c cause, seed uint64) (out tally) {
	synctest.Test(t, func(t *testing.T) {
		f := newField(seed)
		f.start(t)
		<-time.After(time.Second + time.Duration(f.random.IntN(3000))*time.Millisecond)
		c.inject(f)
		select {
		case <-f.started:
			<-time.After(promised * 3 / 2)
		case <-time.After(10 * time.Second):
			t.Errorf("seed %d: the cause never set in", seed)
		}
		out = f.judge(c)
		f.stop(t)
	})
	return out
}

// If step times vary, or a member always takes five times as long as the others, no member reports
// a stall.
func TestQuiet(t *testing.T) {
	for name, slowest := range map[string]float64{"equal": 1, "straggler": 5} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newField(option[uint64]("first"))
				f.culprit.pace = slowest
				f.start(t)
				<-time.After(time.Minute)
				for _, e := range f.log() {
					if s, stalled := e.Body.(event.Stall); stalled {
						t.Errorf("false alarm of %s: %+v", e.Peer, s)
					}
				}
				f.stop(t)
			})
		})
	}
}
