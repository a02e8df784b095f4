package trainer_test

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/internal/race"
	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/trainer"
)

// calm is a job of members that are equally fast, over a network with delays.
type calm struct {
	about, steal string
	boards       bool // the members of a host share words
	perHost      []int
}

// separate has jobs in which nothing can be stolen, each for another reason.
func separate() []calm {
	return []calm{
		{"one member a host", trainer.StealAuto, false, []int{1, 1, 1}},
		{"one member a host, off", trainer.StealOff, false, []int{1, 1, 1}},
		{"one member a host, off, with shared words", trainer.StealOff, true, []int{1, 1, 1}},
	}
}

// play plays the job, and passes each message to see.
func (c calm) play(t *testing.T, steps int64, see func(simnet.Message)) {
	synctest.Test(t, func(t *testing.T) {
		cfg := stealing(steps, false)
		cfg.Balancing.Steal = c.steal
		a := hosted(cfg, 1, c.perHost...)
		net := simnet.New(simnet.Config{Seed: 1, Link: simnet.Link{Delay: time.Millisecond}})
		net.KillWhen(func(m simnet.Message) bool { see(m); return false })
		a.network = net
		if !c.boards {
			a.boards = nil
		}
		a.play(t)
		a.check(t, c.about)
		for _, x := range a.actors {
			if n := x.notes.Load(); n > 0 {
				t.Errorf("%s: %s has sent %d notes", c.about, x.self.ID, n)
			}
		}
	})
}

// sent plays the job, and returns the number of messages on the data plane by sender, receiver, call and length.
func (c calm) sent(t *testing.T) map[string]int {
	var mu sync.Mutex
	all := make(map[string]int)
	c.play(t, 8, func(m simnet.Message) {
		if m.Plane == simnet.Data {
			mu.Lock()
			defer mu.Unlock()
			all[fmt.Sprintf("%s to %s: %s, %d bytes", m.From, m.To, callOf(m.Envelope.Call), m.Bytes)]++
		}
	})
	return all
}

// Where stealing is off, or there is nobody to steal from, members send the same messages. On one host, stealing makes commit records
// longer, and nothing else.
func TestOffSendsNoMore(t *testing.T) {
	// The words of three members, by 8 bytes.
	const short, long = "commit record, 384 bytes", "commit record, 504 bytes"
	want := separate()[0].sent(t)
	for _, c := range separate()[1:] {
		if got := c.sent(t); !maps.Equal(got, want) {
			t.Errorf("%s: messages %v, want %v", c.about, got, want)
		}
	}
	on := calm{"one host", trainer.StealAuto, true, []int{3}}.sent(t)
	off := calm{"one host, off", trainer.StealOff, true, []int{3}}.sent(t)
	for _, all := range []map[string]int{want, off} {
		if n := records(all, short); n == 0 || n != records(all, "commit record") {
			t.Errorf("%d commit records have 384 bytes: messages %v", n, all)
		}
	}
	if far := (calm{"one host, far", trainer.StealFar, true, []int{3}}).sent(t); !maps.Equal(far, on) {
		t.Errorf("on one host, with stealing between hosts, messages %v, want %v", far, on)
	}
	with := make(map[string]int)
	for message, n := range off {
		with[strings.Replace(message, short, long, 1)] = n
	}
	if !maps.Equal(on, with) {
		t.Errorf("on one host messages %v, and with stealing %v", off, on)
	}
}

// records returns the number of messages whose description contains a text.
func records(all map[string]int, text string) (n int) {
	for message, times := range all {
		if strings.Contains(message, text) {
			n += times
		}
	}
	return n
}

// Where stealing is off, a step allocates as many objects as where there is nobody to steal from.
func TestOffAllocatesNoMore(t *testing.T) {
	if race.Enabled {
		t.Skip("counts allocations, which the race detector changes")
	}
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // the collector empties pools
	jobs := separate()
	jobs[0].allocations(t) // fills the pools
	perStep := make([]float64, len(jobs))
	for i, c := range jobs {
		rounds := []float64{c.allocations(t), c.allocations(t), c.allocations(t)}
		slices.Sort(rounds)
		perStep[i] = rounds[1]
	}
	t.Logf("objects a step: %v", perStep)
	for i, n := range perStep {
		// One object of each member would be three. The group's timers add some tenths.
		if math.Abs(n-perStep[0]) > 2 {
			t.Errorf("%s: %.1f objects a step, want %.1f", jobs[i].about, n, perStep[0])
		}
	}
}

// allocations returns the number of objects that all members together allocate in a step.
func (c calm) allocations(t *testing.T) float64 {
	const short, long = 10, 160
	var at [3]runtime.MemStats
	for i, steps := range []int64{short, long} {
		runtime.ReadMemStats(&at[i])
		c.play(t, steps, func(simnet.Message) {})
	}
	runtime.ReadMemStats(&at[2])
	return float64(at[2].Mallocs-at[1].Mallocs-(at[1].Mallocs-at[0].Mallocs)) / (long - short)
}
