package job_test

import (
	"container/heap"
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/launch/internal/job"
)

// The simulator runs the peers and the launchers of one job. All random choices are hashes of the seed
// and of what is chosen, so a schedule replays exactly, also with some of its faults left out.

// unit is the unit of time of the simulator. All its times are numbers of units.
const unit = 100 * time.Millisecond

// horizon is when a run ends that has not ended by itself.
const horizon = 2000

// plan is what happens in a run.
type plan struct {
	seed                  uint64
	peers, joined, joinAt int  // peers of launcher 0, and of launcher 1, which joins
	restarts, steps, boot int  // boot: longest start of a process
	programs              int  // of the command
	silent                bool // the programs have no result to report
	faults                []fault
}

type world struct {
	p           plan
	now, seq    int
	agenda      agenda
	launchers   []*launcher
	procs       []*peer
	groups      []*group
	bad         []string // violations
	trace       func(string, ...any)
	gaveUp      bool
	halfGaveUp  bool // although the other half was dead
	killMembers bool // right after the next admission
}

type happening struct {
	at, seq int
	do      func()
}

// agenda is a heap of what will happen.
type agenda []happening

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at < a[j].at || a[i].at == a[j].at && a[i].seq < a[j].seq
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(happening)) }
func (a *agenda) Pop() any {
	x := (*a)[len(*a)-1]
	*a = (*a)[:len(*a)-1]
	return x
}

func (w *world) at(t int, do func())    { w.seq++; heap.Push(&w.agenda, happening{t, w.seq, do}) }
func (w *world) after(d int, do func()) { w.at(w.now+d, do) }

// pick returns a number from 0 to n-1 that depends on the seed and the key only.
func (w *world) pick(n int, key ...int) int {
	h := w.p.seed*0x9e3779b97f4a7c15 + 0x1234567
	for _, k := range key {
		h ^= uint64(k) + 0x9e3779b97f4a7c15 + h<<6 + h>>2
		h *= 0xbf58476d1ce4e5b9
		h ^= h >> 29
	}
	return int(h % uint64(max(1, n)))
}

func (w *world) say(f string, a ...any) {
	if w.trace != nil {
		w.trace("%5.1f  "+f, append([]any{float64(w.now) / 10}, a...)...)
	}
}

func (w *world) fail(f string, a ...any) {
	w.bad = append(w.bad, fmt.Sprintf(f, a...))
	w.say("VIOLATION "+f, a...)
}

// run runs a plan and returns the violations.
func run(p plan, trace func(string, ...any)) []string {
	w := &world{p: p, trace: trace}
	w.launch(0, job.Config{Peers: p.peers, Restarts: p.restarts})
	if p.joined > 0 {
		w.at(p.joinAt, func() {
			if !w.launchers[0].ended {
				w.launch(1, job.Config{Peers: p.joined, Restarts: p.restarts, Join: true})
			}
		})
	}
	for _, f := range p.faults {
		w.at(f.at, func() { w.disturb(f) })
	}
	running := func() bool { return slices.ContainsFunc(w.launchers, func(l *launcher) bool { return !l.ended }) }
	for len(w.agenda) > 0 && w.now <= horizon && (running() || w.now <= p.joinAt) {
		h := heap.Pop(&w.agenda).(happening)
		w.now = h.at
		h.do()
	}
	w.check()
	return w.bad
}
