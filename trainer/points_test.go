package trainer_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/elastic/member"
	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/trainer"
)

// The tests of this package have one flag:
//
//	go test ./trainer -run Kill -v -long   more kills, up to one at every protocol point; -v prints the table of the kills
func TestMain(m *testing.M) {
	flag.Bool("long", false, "the long forms: kill at more protocol points")
	flag.Parse()
	os.Exit(m.Run())
}

// pick returns the value for the short or the long form of a test.
func pick[T any](short, long T) T {
	if flag.Lookup("long").Value.String() == "true" {
		return long
	}
	return short
}

// point identifies a message before which a member is killed, by its number among the member's
// messages of its class. Scheduling can change the order of messages, but not their classes.
type point struct {
	victim elastic.ID
	class  string
	number int
}

// dozen bounds the kills in the long form of a test that looks for one cause only: the test kills at no more than this number of
// messages of each class and member.
const dozen = 12

// kill returns the function that selects the point's message.
func (p point) kill() func(simnet.Message) bool {
	var sent atomic.Int64
	return func(m simnet.Message) bool {
		return m.From == p.victim && classOf(m, latecomer) == p.class && sent.Add(1) == int64(p.number)
	}
}

// String describes a kill in errors.
func (p point) String() string {
	return fmt.Sprintf("kill at %s, message %d of %q", p.victim, p.number, p.class)
}

// census counts, by member and class, the messages of a job without kills. It is safe for concurrent use.
type census struct {
	mu   sync.Mutex
	sent map[point]int // the key has number 0; the value is the number of messages of its class
}

// add counts a message. It returns false, so that stage kills no member.
func (c *census) add(m simnet.Message) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sent == nil {
		c.sent = make(map[point]int)
	}
	c.sent[point{m.From, classOf(m, latecomer), 0}]++
	return false
}

// points returns points of each class and member, evenly spread. most bounds their number for each class and member. Only
// messages whose class begins with one of the planes count.
func (c *census) points(most int, planes ...string) []point {
	var all []point
	for p, sent := range c.sent {
		if !slices.ContainsFunc(planes, func(plane string) bool { return strings.HasPrefix(p.class, plane) }) {
			continue
		}
		n := min(most, sent)
		for i := range n {
			p.number = 1 + (2*i+1)*sent/(2*n)
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(p, q point) int {
		return cmp.Or(cmp.Compare(p.victim, q.victim), cmp.Compare(p.class, q.class), cmp.Compare(p.number, q.number))
	})
	return all
}

// kills counts the kills of a test by the class of the message that was not sent. It is safe for
// concurrent use.
type kills struct {
	mu    sync.Mutex
	total int
	of    map[string]int
}

func (k *kills) add(class string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil {
		k.of = make(map[string]int)
	}
	k.total++
	k.of[class]++
}

// table returns the counts as text.
func (k *kills) table() string {
	var b strings.Builder
	for _, class := range slices.Sorted(maps.Keys(k.of)) {
		fmt.Fprintf(&b, "\n%6d  %s", k.of[class], class)
	}
	return fmt.Sprintf("kills at %d points:%s", k.total, b.String())
}

// want fails the test if there were fewer kills than least, or none in one of the classes.
func (k *kills) want(t *testing.T, least int, classes ...string) {
	t.Helper()
	if k.total < least {
		t.Errorf("%d points, want at least %d", k.total, least)
	}
	for _, class := range classes {
		if k.of[class] == 0 {
			t.Errorf("no kill at %q", class)
		}
	}
}

// classOf returns the class of a message.
func classOf(m simnet.Message, joiner elastic.ID) string {
	switch m.Plane {
	case simnet.Control:
		return "control: " + letterOf(m.Payload)
	case simnet.Bulk:
		return "bulk: " + bulkOf(m.Payload, m.From == joiner)
	}
	return "data: " + callOf(m.Envelope.Call)
}

// letterOf returns the kind of a control message, which its first byte determines. For a message of the membership protocol it
// also returns that message's own kind.
func letterOf(payload []byte) string {
	switch payload[0] {
	case 1:
		m, err := member.Decode(payload[1:])
		if err != nil {
			return err.Error()
		}
		return "view change, " + m.Kind.String()
	case 2:
		return "beat"
	}
	return "other"
}

// bulkOf returns the kind of a bulk message. The first byte of a request has its kind. An answer is empty, and its kind depends on
// whether the joiner sends it.
func bulkOf(payload []byte, joiner bool) string {
	switch {
	case len(payload) > 0 && payload[0] == 'o':
		return "offer"
	case len(payload) > 0:
		return "request of state"
	case joiner:
		return "answer of the joiner"
	}
	return "state"
}

// callOf returns the part of a step to which a collective call belongs. The kind of the call and its element type determine the
// part.
func callOf(c transport.Call) string {
	switch {
	case c.Kind == transport.KindPoint:
		return "catch-up"
	case c.Kind == transport.KindAllGather && c.Type == dtype.TypeOf[int64]():
		return "level"
	case c.Kind == transport.KindAllGather:
		return "entry"
	case c.Type == dtype.TypeOf[int32]():
		return fmt.Sprintf("bucket of %d", c.Count)
	case c.Type == dtype.TypeOf[uint8]():
		return "peaks"
	case c.Type == dtype.TypeOf[int64]():
		return "commit record"
	}
	return c.String()
}

// staged is an arena whose network passes every message to a function before it is sent. Another peer joins after the second
// step.
type staged struct {
	*arena
	net *simnet.Network

	mu    sync.Mutex
	kills []string // classes of the messages at which a member was killed
}

const latecomer elastic.ID = "late-peer"

// stage returns an arena of n members. For every message, the function kill decides whether the sender dies before that message.
func stage(n int, cfg trainer.Config, kill func(simnet.Message) bool) *staged {
	s := &staged{arena: newArena(n, cfg), net: simnet.New(simnet.Config{Seed: 1, Link: simnet.Link{
		Delay: 100 * time.Microsecond, Lag: 200 * time.Microsecond}})}
	s.network = s.net
	var begun atomic.Bool
	s.adjust = func(x *actor) {
		x.model.pace = 30 * time.Millisecond
		x.cfg.Hooks.OnBegin = func(step int64) {
			if step == 2 && begun.CompareAndSwap(false, true) {
				s.start(elastic.Member{ID: latecomer, Index: n}, nil)
			}
		}
	}
	s.net.KillWhen(func(m simnet.Message) bool {
		if !kill(m) {
			return false
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.kills = append(s.kills, classOf(m, latecomer))
		s.actor(m.From).killed.Store(true)
		return true
	})
	return s
}

// actor returns the process with an ID.
func (a *arena) actor(id elastic.ID) *actor {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.actors[slices.IndexFunc(a.actors, func(x *actor) bool { return x.self.ID == id })]
}

// rehearse plays the job without a kill, checks that the weights are want, and counts the messages.
func rehearse(t *testing.T, n int, cfg trainer.Config, want string) (c *census) {
	t.Helper()
	c = new(census)
	synctest.Test(t, func(t *testing.T) {
		s := stage(n, cfg, c.add)
		s.play(t)
		if sha := s.check(t, "no kill"); sha != want {
			t.Fatalf("weights %s, want %s", sha, want)
		}
		if peers := s.actors[0].result.Peers; peers != n+1 {
			t.Fatalf("%d members at the end: nobody has joined", peers)
		}
	})
	return c
}

// inParallel calls f with 0 to n-1, several at a time, each in a synctest bubble of its own.
func inParallel(t *testing.T, n int, f func(t *testing.T, i int)) {
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		t.Run(fmt.Sprint("part ", w), func(t *testing.T) {
			t.Parallel()
			for i := w; i < n && !t.Failed(); i += workers {
				synctest.Test(t, func(t *testing.T) { f(t, i) })
			}
		})
	}
}

// A member dies before one of its messages, in a job that begins, continues, admits another peer and ends. The test tries
// messages on all planes. Scheduling can make a run shorter than the rehearsal. Its last points then do not occur, and are not
// counted.
func TestKillAtEveryPoint(t *testing.T) {
	cfg := churning(7, true)
	want := alone(t, cfg)
	points := rehearse(t, 4, cfg, want).points(pick(2, math.MaxInt), "control", "data", "bulk")
	var met kills
	t.Run("points", func(t *testing.T) {
		inParallel(t, len(points), func(t *testing.T, i int) {
			p := points[i]
			s := stage(4, cfg, p.kill())
			s.play(t)
			about := fmt.Sprintf("%v, %v", p, s.kills)
			if sha := s.check(t, about); sha != want {
				t.Errorf("%s: weights %s, want %s", about, sha, want)
			}
			for _, class := range s.kills {
				met.add(class)
			}
		})
	})
	t.Log(met.table())
	met.want(t, pick(150, 500), "data: level", "data: entry", "data: bucket of 6", "data: bucket of 5", "data: bucket of 3", "data: peaks", "data: commit record",
		"control: view change, accept", "control: view change, accepted", "control: view change, chain", "control: beat",
		"bulk: request of state", "bulk: state")
}

// A second member dies while the others handle the first death: in the view change, at the entry, in the catch-up of members that
// missed a commit, or in the step after that.
func TestKillTwoAtManyPoints(t *testing.T) {
	t.Parallel()
	cfg := churning(3, true)
	want := alone(t, cfg)
	classes := []string{"data: level", "data: catch-up", "data: entry", "data: bucket", "data: peaks", "data: commit record", "control: beat",
		"control: view change, tell", "control: view change, prepare", "control: view change, promise",
		"control: view change, accept", "control: view change, accepted", "control: view change, chain", "bulk"}
	// The first kill is at one of 6 commit record messages, from the third on; the second is at the nth later message of a class.
	tails, nth := 6, pick([]int{1}, []int{1, 4})
	var met kills
	t.Run("points", func(t *testing.T) {
		inParallel(t, tails*len(nth)*len(classes), func(t *testing.T, i int) {
			first, n, class := 3+i%tails, nth[i/tails%len(nth)], classes[i/tails/len(nth)]
			s := stage(5, cfg, secondAfter(first, n, class))
			s.play(t)
			about := fmt.Sprintf("kill at commit record message %d, another at message %d of %q, %v", first, n, class, s.kills)
			if sha := s.check(t, about); sha != want {
				t.Errorf("%s: weights %s, want %s", about, sha, want)
			}
			if len(s.kills) == 2 {
				met.add(s.kills[1])
			}
		})
	})
	t.Log("second " + met.table())
	met.want(t, pick(50, 100), "data: level", "data: catch-up", "data: entry", "data: commit record", "control: view change, promise",
		"control: view change, accept", "control: view change, accepted", "control: view change, chain")
}

// secondAfter returns a function that kills twice. The first victim is the sender of a commit record message; first is the number
// of that message among the commit record messages. The second victim is the sender of a later message: the nth message whose class
// begins with class.
func secondAfter(first, nth int, class string) func(simnet.Message) bool {
	var tails, later atomic.Int64
	return func(m simnet.Message) bool {
		if tails.Load() >= int64(first) {
			return strings.HasPrefix(classOf(m, latecomer), class) && later.Add(1) == int64(nth)
		}
		return m.Plane == simnet.Data && callOf(m.Envelope.Call) == "commit record" && tails.Add(1) == int64(first)
	}
}

// sinceFirst returns a function that selects the n-th message of a member on the data plane. The count begins with the member's
// first message of a class.
func sinceFirst(id elastic.ID, class string, n int64) func(simnet.Message) bool {
	var sent atomic.Int64
	return func(m simnet.Message) bool {
		if m.From != id || m.Plane != simnet.Data || sent.Load() == 0 && !strings.HasPrefix(classOf(m, latecomer), class) {
			return false
		}
		return sent.Add(1) == n
	}
}

// The gradients of the first step do not fit the first scale, so all ranks compute the step again. A member dies in one of the
// two attempts or between them. Members that missed the second attempt learn of it when they enter the next session.
func TestKillInTheSecondAttempt(t *testing.T) {
	cfg := churning(3, true)
	cfg.Gradients.Clip = 50
	steep := func(x *actor) { x.model.scale = 1000 }
	var want string
	synctest.Test(t, func(t *testing.T) {
		a := newArena(1, cfg)
		a.adjust = steep
		a.play(t)
		want = a.check(t, "alone")
	})
	inSecond := 0
	for k := int64(1); k <= 60; k++ {
		synctest.Test(t, func(t *testing.T) {
			victim := elastic.ID(fmt.Sprint("peer-of-rank-", k%4))
			s := stage(4, cfg, sinceFirst(victim, "data: bucket", k))
			s.adjust = steep
			s.play(t)
			about := fmt.Sprintf("kill of %s at message %d, %v", victim, k, s.kills)
			if sha := s.check(t, about); sha != want {
				t.Errorf("%s: weights %s, want %s", about, sha, want)
			}
			survivor := s.actors[(k+1)%4]
			if first := survivor.steps[0]; first.Step != 1 || first.Attempt != 1 {
				t.Errorf("%s: step %d was committed with attempt %d", about, first.Step, first.Attempt)
			}
			if x := s.actor(victim); x.tries[1] == 2 && x.tries[2] == 0 {
				inSecond++
			}
		})
	}
	if inSecond < 5 {
		t.Errorf("%d kills in the second attempt", inSecond)
	}
	t.Logf("%d kills in the second attempt", inSecond)
}
