package hangs

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/race"
	"github.com/elrun/elrun/testing/simnet"
)

func TestMain(m *testing.M) {
	seeds := 5
	if race.Enabled {
		seeds = 2 // the race detector takes ten times as long
	}
	flag.Int("seeds", seeds, "runs of each cause")
	flag.Uint64("first", 1, "seed of the first of them")
	flag.Parse()
	os.Exit(m.Run())
}

// option returns the value of a flag of TestMain.
func option[T any](name string) T {
	return flag.Lookup(name).Value.(flag.Getter).Get().(T)
}

// cause is a cause of a hang or a crash.
type cause struct {
	name   string
	inject func(f *field)
	// found lists the causes that the judge may find.
	found []string
	// least is the additional time before the records are taken.
	least time.Duration
	// ends is set if the other end of a link is as right as the culprit.
	ends bool
}

// causes lists all tested causes. A wait stands for the loop without an end, which testing/e2e has; the disk is /dev/full.
func causes() []cause {
	mood := func(what int32) func(f *field) { return func(f *field) { f.culprit.mood.Store(what) } }
	gone := []string{flight.Lost, flight.Failed, flight.NoAnswer}
	link := []string{flight.Link, flight.Absent}
	return []cause{
		{"absent", mood(absent), []string{flight.Absent}, 0, false},
		{"other call", mood(otherCall), []string{flight.OtherCall}, 0, false},
		{"other length", mood(otherLength), []string{flight.OtherLength}, 0, false},
		{"other order", mood(otherOrder), []string{flight.OtherOrder}, 0, false},
		{"stopped", func(f *field) {
			f.network.Stop(f.culprit.ID)
			f.culprit.halted.Store(true)
		}, []string{flight.Halted, flight.NoAnswer, flight.Lost}, 0, false},
		{"dead loop", mood(deadLoop), []string{flight.Absent}, 0, false},
		{"dead link", func(f *field) {
			f.network.Cut(f.culprit.ID, f.partner().ID, simnet.Data)
			f.network.Cut(f.partner().ID, f.culprit.ID, simnet.Data)
		}, link, time.Second, true},
		{"slow link", (*field).collapse, link, time.Second, false},
		{"panic in a call", mood(panics), gone, 0, false},
		{"exit in a call", (*field).exitInCall, gone, 0, false},
		{"disk full", mood(fails), gone, 0, false},
		{"lost quorum", (*field).loseQuorum, append(gone, flight.Quorum), 0, false},
		{"parked", (*field).park, []string{flight.Parked}, 2 * time.Second, false},
		{"deadlock", mood(deadlock), []string{flight.Deadlock}, 0, false},
	}
}

// park lets a newcomer ask for admission, which is the culprit.
func (f *field) park() {
	f.culprit = &member{Member: elastic.Member{ID: "newcomer", Index: len(f.members)}, field: f}
	f.members = append(f.members, f.culprit)
	f.culprit.start(elastic.Config{Contacts: func() []elastic.Member { return f.first }})
}

// partner returns a member with which the culprit exchanges messages in every algorithm: the neighbour of its pair.
func (f *field) partner() *member {
	i := f.culprit.Index ^ 1
	if i >= len(f.members) {
		i = f.culprit.Index - 1
	}
	return f.members[i]
}

// collapse takes nearly all bandwidth from the links of the culprit, when a large message uses one of them.
func (f *field) collapse() {
	var begun atomic.Bool
	f.network.KillWhen(func(m simnet.Message) bool {
		touches := m.From == f.culprit.ID || m.To == f.culprit.ID
		if touches && m.Plane == simnet.Data && m.Bytes > 500 && begun.CompareAndSwap(false, true) {
			slow := simnet.Link{Delay: time.Millisecond, Bandwidth: 400}
			f.network.SetLink(simnet.Any, f.culprit.ID, slow, simnet.Data)
			f.network.SetLink(f.culprit.ID, simnet.Any, slow, simnet.Data)
		}
		return false
	})
}

// exitInCall ends the culprit when it sends a message of a call.
func (f *field) exitInCall() {
	f.network.KillWhen(func(m simnet.Message) bool {
		if m.From == f.culprit.ID && m.Plane == simnet.Data && f.culprit.end.Load() == nil {
			f.culprit.ends("status 3")
		}
		return false
	})
}

// loseQuorum kills more than half of the members, the culprit among them.
func (f *field) loseQuorum() {
	for i := range len(f.members)/2 + 1 {
		f.members[(f.culprit.Index+i)%len(f.members)].ends("killed by signal 9")
	}
}

// For each cause, the records name the member that is the culprit, and why, in 69 of 70 runs.
func TestCauses(t *testing.T) {
	seeds, first := option[int]("seeds"), option[uint64]("first")
	var table []string
	wrong := 0
	for _, c := range causes() {
		t.Run(c.name, func(t *testing.T) {
			for seed := first; seed < first+uint64(seeds); seed++ {
				v, problem := runWith(t, c, seed)
				if problem != "" {
					wrong++
					t.Logf("seed %d: %s: %+v", seed, problem, v)
				}
				table = append(table, fmt.Sprintf("%-16s seed %-4d %-13s %s", c.name, seed, v.Cause, v.Text))
			}
		})
	}
	t.Logf("%d of %d wrong\n%s", wrong, len(table), strings.Join(table, "\n"))
	if wrong*70 > len(table) {
		t.Errorf("%d of %d runs name another culprit, want at most one of 70", wrong, len(table))
	}
}

// runWith runs a job in which the cause affects one member, and says what is wrong in the finding.
func runWith(t *testing.T, c cause, seed uint64) (v flight.Finding, problem string) {
	synctest.Test(t, func(t *testing.T) {
		f := newField(seed)
		f.commits = c.name == "parked"
		f.start(t)
		<-time.After(time.Second + time.Duration(f.random.IntN(1000))*time.Millisecond)
		c.inject(f)
		// Before the first reports of stalls, after a second, nothing tells two ranks apart that exchange vectors.
		<-time.After(c.least + 800*time.Millisecond + time.Duration(f.random.IntN(2500))*time.Millisecond)
		v = f.judge(t)
		right := []elastic.ID{f.culprit.ID}
		if c.ends {
			right = append(right, f.partner().ID)
		}
		if c.name == "lost quorum" {
			right = nil
			for _, m := range f.members {
				if m.end.Load() != nil {
					right = append(right, m.ID)
				}
			}
		}
		switch {
		case !slices.ContainsFunc(right, func(id elastic.ID) bool { return id.Short() == v.Peer }):
			problem = fmt.Sprintf("the culprit is %v", right)
		case !slices.Contains(c.found, v.Cause):
			problem = fmt.Sprintf("the cause is one of %q", c.found)
		case len(v.Text) > flight.MaxText || v.Text == "":
			problem = "the text is too long or empty"
		}
		f.stop(t)
	})
	return v, problem
}

// The records of a job in which nothing is wrong name nobody.
func TestNoCause(t *testing.T) {
	for seed := range uint64(option[int]("seeds")) {
		synctest.Test(t, func(t *testing.T) {
			f := newField(seed)
			f.start(t)
			for range 10 {
				<-time.After(time.Duration(f.random.IntN(300)) * time.Millisecond)
				if v := f.judge(t); v.Cause != flight.None {
					t.Errorf("seed %d: %+v", seed, v)
				}
			}
			f.stop(t)
		})
	}
}
