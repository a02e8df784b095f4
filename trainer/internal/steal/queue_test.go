package steal_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/elrun/elrun/trainer/internal/ledger"
	"github.com/elrun/elrun/trainer/internal/steal"
)

// board has the words of the ranks of one host.
type board [][4]atomic.Uint64

// place is the board as a rank sees it.
type place struct {
	board board
	self  int
	// before, if set, is called before the rank changes the range of a rank: what others do at the last moment.
	before func(rank int)
}

func (p place) Has(rank int) bool       { return rank < len(p.board) }
func (p place) Load(rank, i int) uint64 { return p.board[rank][i].Load() }
func (p place) Store(i int, v uint64) {
	p.changing(p.self, i)
	if p.Has(p.self) {
		p.board[p.self][i].Store(v)
	}
}
func (p place) Swap(rank, i int, old, next uint64) bool {
	p.changing(rank, i)
	return p.board[rank][i].CompareAndSwap(old, next)
}

// changing calls before, if i is the word of a range.
func (p place) changing(rank, i int) {
	if i == 0 && p.before != nil {
		p.before(rank)
	}
}

// clock is a clock of one goroutine.
type clock struct{ now int64 }

// entered returns the queues of n ranks of a host that hold parts of the step.
func entered(n int, held []ledger.Set, now func() int64) (all []*steal.Queue, b board) {
	b = make(board, n)
	for r := range n {
		q := &steal.Queue{Allowed: true, FirstCall: firstOf, Now: now}
		q.Enter(make([]int, n), r, place{b, r, nil}, nil, held)
		all = append(all, q)
	}
	return all, b
}

// divided divides microbatches into calls of at most the given number.
func divided(micros []int, together int) [][]int {
	return slices.Collect(slices.Chunk(micros, together))
}

// firstOf is the length of the first of the calls of divided.
func firstOf(n, together int) int { return min(n, together) }

// opened returns the queues of two ranks with four microbatches each, in the first try.
func opened(c *clock, together int) ([]*steal.Queue, board, []ledger.Set) {
	all, b := entered(2, nil, func() int64 { return c.now })
	shares, _ := ledger.Assign(make([]ledger.Set, 2), nil, 8)
	for r, q := range all {
		q.Open(shares, divided(shares[r].Without(nil), together), together)
	}
	return all, b, shares
}

// emptied empties a queue, with a pause for each microbatch, and returns what it held at last.
func emptied(t *testing.T, q *steal.Queue, held ledger.Set, pause time.Duration) ledger.Set {
	held = held.Clone()
	for ended := false; ; {
		micros, last, err := q.Next(steal.Most)
		if err != nil || ended && micros != nil {
			t.Errorf("error %v, microbatches %v, which follow the last call: %t", err, micros, ended)
		}
		if len(micros) == 0 {
			return held
		}
		ended = last
		for _, k := range micros {
			if held.Has(k) {
				t.Errorf("microbatch %d is computed again", k)
			}
			held.Add(k)
		}
		for begun := time.Now(); time.Since(begun) < pause*time.Duration(len(micros)); {
		}
	}
}

// Ranks of different speeds empty their queues at the same time, try after try. Each microbatch is computed once, and the reports tell
// by whom.
func TestQueues(t *testing.T) {
	t.Parallel()
	const ranks, tries = 4, 40
	dice := rand.New(rand.NewPCG(1, 2))
	started := time.Now()
	var all []*steal.Queue
	sum := 0
	for try := range tries {
		microbatches, together := 1+dice.IntN(120), 1+dice.IntN(3)
		held := make([]ledger.Set, ranks)
		for r := range held {
			held[r] = ledger.NewSet(microbatches)
		}
		if try%10 == 0 { // a new session, in which some microbatches are held
			for k := range microbatches {
				if r := dice.IntN(2 * ranks); r < ranks {
					held[r].Add(k)
				}
			}
			all, _ = entered(ranks, held, func() int64 { return int64(time.Since(started)) })
		}
		shares, _ := ledger.Assign(held, nil, microbatches)
		got, reports := make([]ledger.Set, ranks), make([]steal.Report, ranks)
		slow := dice.IntN(ranks)
		var running sync.WaitGroup
		for r, q := range all {
			q.Open(shares, divided(shares[r].Without(held[r]), together), together)
			pause := 100 * time.Microsecond
			if r == slow {
				pause *= 10
			}
			running.Go(func() {
				got[r] = emptied(t, q, held[r], pause)
				reports[r] = q.Report(got[r])
			})
		}
		running.Wait()
		for _, q := range all {
			told, err := q.Held(shares, reports)
			if err != nil {
				t.Fatal(err)
			}
			for r := range told {
				if !slices.Equal(told[r], got[r]) {
					t.Fatalf("try %d: rank %d is taken to hold %v, and holds %v", try, r, told[r].Ranges(), got[r].Ranges())
				}
			}
			sum += q.Stolen()
		}
		once(t, got, microbatches)
	}
	if sum == 0 {
		t.Error("nothing was stolen")
	}
}

// once checks that each microbatch is in one set.
func once(t *testing.T, sets []ledger.Set, microbatches int) {
	t.Helper()
	for k := range microbatches {
		n := 0
		for _, s := range sets {
			if s.Has(k) {
				n++
			}
		}
		if n != 1 {
			t.Fatalf("microbatch %d of %d was computed %d times", k, microbatches, n)
		}
	}
}

// A rank that has one call left puts it aside, steals from a slow rank, and makes its last call at last. The slow rank computes what is
// left.
func TestATheft(t *testing.T) {
	c := &clock{}
	all, _, shares := opened(c, 1)
	if micros, _, err := all[1].Next(8); err != nil || !slices.Equal(micros, []int{4}) {
		t.Fatalf("the slow rank begins with %v, %v", micros, err)
	}
	var order []int
	for range 7 {
		micros, last, err := all[0].Next(8)
		if err != nil || last != (len(order) == 6) {
			t.Fatalf("after %v: %v, last %t, error %v", order, micros, last, err)
		}
		order = append(order, micros...)
		c.now += 1e6
	}
	// After three milliseconds the slow rank has three microbatches left, of three milliseconds each as it seems, and two milliseconds
	// later one of five.
	if !slices.Equal(order, []int{0, 1, 2, 6, 7, 5, 3}) || all[0].Stolen() != 3 {
		t.Errorf("order %v, %d stolen", order, all[0].Stolen())
	}
	rest := []int{4}
	for micros, last, err := all[1].Next(8); micros != nil; micros, last, err = all[1].Next(8) {
		if err != nil {
			t.Errorf("error %v, last %t", err, last)
		}
		rest = append(rest, micros...)
	}
	if !slices.Equal(rest, []int{4}) {
		t.Errorf("the slow rank has computed %v", rest)
	}
	held := []ledger.Set{{0b11101111}, {0b10000}}
	told, err := all[1].Held(shares, []steal.Report{all[0].Report(held[0]), all[1].Report(held[1])})
	if err != nil || !slices.Equal(told[0], held[0]) || !slices.Equal(told[1], held[1]) {
		t.Errorf("%v, error %v", told, err)
	}
}

// Others rob a rank between its look at a range and its change of the range. It then takes what is left.
func TestAtTheLastMoment(t *testing.T) {
	for name, c := range map[string]struct {
		of   int   // whose range is robbed
		want []int // what rank 0 computes
	}{"the owner": {0, []int{0, 7}}, "a thief": {1, []int{0, 1, 2, 5, 3}}} {
		c0 := &clock{}
		b, shares := make(board, 3), []ledger.Set{{0b1111}, {0b11110000}, {0}}
		armed := false
		before := func(rank int) { // another thief takes what it can
			if armed && rank == c.of {
				armed = false
				w := steal.Word(b[c.of][0].Load())
				next, end, _ := w.Range(1, 8)
				b[c.of][0].Store(uint64(w.Back(min(end-next, 2+(1-c.of)))))
			}
		}
		var all []*steal.Queue
		for r := range 3 {
			q := &steal.Queue{Allowed: true, FirstCall: firstOf, Now: func() int64 { return c0.now }}
			q.Enter(make([]int, 3), r, place{b, r, before}, nil, nil)
			q.Open(shares, divided(shares[r].Without(nil), 1), 1)
			all = append(all, q)
		}
		if _, _, err := all[1].Next(8); err != nil {
			t.Fatal(err)
		}
		var got []int
		for {
			armed = c.of == 1 && len(got) == 3 || c.of == 0 && len(got) == 1
			micros, _, err := all[0].Next(8)
			if err != nil {
				t.Fatal(err)
			}
			if micros == nil {
				break
			}
			got = append(got, micros...)
			c0.now += 1e6
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: rank 0 has computed %v, want %v", name, got, c.want)
		}
	}
}

// A rank steals no more than it has room for.
func TestRoom(t *testing.T) {
	for most, want := range map[int]int{3: 0, 4: 0, 5: 1, 6: 2, 99: 3} {
		c := &clock{}
		all, _, _ := opened(c, 1)
		if _, _, err := all[1].Next(most); err != nil {
			t.Fatal(err)
		}
		computed := 0
		all[0].Bound = most
		for micros, _, err := all[0].Next(0); micros != nil; micros, _, err = all[0].Next(computed) {
			if err != nil {
				t.Fatal(err)
			}
			c.now += 1e6
			computed++
		}
		if got := all[0].Stolen(); got != want || computed != 4+want {
			t.Errorf("room for %d: %d computed, %d stolen, want %d", most, computed, got, want)
		}
	}
}

// A queue in damaged memory is an error and no microbatch twice.
func TestDamagedQueues(t *testing.T) {
	for name, w := range map[string]steal.Word{
		"another try": steal.Pack(7, 2, 4), "begun ones": steal.Pack(1, 0, 4), "more": steal.Pack(1, 1, 6), "backwards": steal.Pack(1, 4, 1),
		"the session has ended": 0,
	} {
		all, b, _ := opened(&clock{}, 1)
		if micros, _, err := all[0].Next(8); err != nil || !slices.Equal(micros, []int{0}) {
			t.Fatalf("%s: %v, %v", name, micros, err)
		}
		b[0][0].Store(uint64(w))
		if micros, _, err := all[0].Next(8); !errors.Is(err, steal.ErrDamaged) {
			t.Errorf("%s: %v, error %v", name, micros, err)
		}
	}
}

// A rank that is late with a try robs nobody in the next one.
func TestALateThief(t *testing.T) {
	c := &clock{}
	all, b, shares := opened(c, 1)
	old := b[1][0].Load()
	if _, _, err := all[1].Next(8); err != nil {
		t.Fatal(err)
	}
	all[1].Open(shares, divided(shares[1].Without(nil), 1), 1)
	if b[1][0].Load() == old {
		t.Error("the words of two tries are equal")
	}
	c.now += 1e9
	for micros, _, err := all[0].Next(8); micros != nil; micros, _, err = all[0].Next(8) {
		c.now += 1e6
		if err != nil || micros[0] > 3 {
			t.Errorf("microbatch %d, error %v", micros[0], err)
		}
	}
}

// The first call began before the try, and is not begun again. If it is the last one, nothing is stolen after it.
func TestTheFirstCallHasBegun(t *testing.T) {
	for _, together := range []int{1, 4} {
		all, _, _ := opened(&clock{}, together)
		if first := all[0].First(); len(first) != together || first[0] != 0 {
			t.Errorf("%d together: the first call is %v", together, first)
		}
		last := all[0].Begun()
		micros, _, err := all[0].Next(8)
		if last != (together == 4) || err != nil || together == 1 && !slices.Equal(micros, []int{1}) || together == 4 && micros != nil {
			t.Errorf("%d together: last %t, then %v, %v", together, last, micros, err)
		}
	}
}

// Only ranks of one host steal, and only if it is allowed. Otherwise there is nothing to report.
func TestWhereNothingIsStolen(t *testing.T) {
	for _, c := range []struct {
		allowed bool
		hosts   []int
		want    bool
	}{{true, []int{0, 0}, true}, {true, []int{0, 1, 0}, true}, {true, []int{0}, false}, {true, []int{0, 1, 2}, false}, {false, []int{0, 0}, false}} {
		q := &steal.Queue{Allowed: c.allowed, FirstCall: firstOf, Now: func() int64 { return 0 }}
		q.Enter(c.hosts, 0, place{}, nil, nil)
		shares := []ledger.Set{{3}, {4}, {8}}[:len(c.hosts)]
		q.Open(shares, [][]int{{0}, {1}}, 1)
		if q.Active() != c.want || c.want == (q.Report(ledger.Set{3}) == steal.Report{}) {
			t.Errorf("%+v: active %t, report %v", c, q.Active(), q.Report(ledger.Set{3}))
		}
		// Without words this rank computes its share.
		for i := range 2 {
			if micros, last, err := q.Next(9); err != nil || !slices.Equal(micros, []int{i}) || last != (i == 1) {
				t.Errorf("%+v: %v, last %t, error %v", c, micros, last, err)
			}
		}
	}
}

// Where nothing can be stolen, a try allocates nothing.
func TestNothingIsAllocated(t *testing.T) {
	q := &steal.Queue{Allowed: true, FirstCall: firstOf, Now: func() int64 { return 0 }}
	q.Enter([]int{0, 1, 2}, 0, place{}, nil, nil)
	shares, calls, held := []ledger.Set{{3}, {4}, {8}}, [][]int{{0}, {1}}, ledger.Set{3}
	try := func() {
		q.Open(shares, calls, 1)
		for last := false; !last; {
			_, last, _ = q.Next(0)
		}
		q.Report(held)
	}
	if n := testing.AllocsPerRun(10, try); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// What a rank that is gone may have computed includes the shares of its host, and no others.
func TestSuspects(t *testing.T) {
	q := &steal.Queue{Allowed: true}
	q.Enter([]int{0, 1, 0}, 0, place{}, nil, nil)
	wide := q.Suspects([]ledger.Set{{1}, {2}, {4}})
	if !slices.Equal(wide[0], ledger.Set{5}) || !slices.Equal(wide[1], ledger.Set{2}) || !slices.Equal(wide[2], ledger.Set{5}) {
		t.Errorf("%v", wide)
	}
	q.Enter([]int{0, 1, 2}, 0, place{}, nil, nil)
	if same := q.Suspects([]ledger.Set{{1}, {2}, {4}}); !slices.Equal(same[0], ledger.Set{1}) {
		t.Errorf("%v where nothing is stolen", same)
	}
}
