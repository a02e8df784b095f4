package stall

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/elrun/elrun/collective/transport"
)

// network simulates ranks and the signals between them. Each rank waits in one call, or computes.
type network struct {
	random *rand.Rand
	now    time.Duration
	nodes  []*node
	flying []flying
	loss   float64
	delay  time.Duration
	sent   int
}

type flying struct {
	at       time.Duration
	from, to int
	data     []byte
}

// node is one rank of the simulation.
type node struct {
	*network
	chase   Chase
	wait    Wait // For is empty while the rank computes
	stopped bool
}

func newNet(seed uint64, n int) *network {
	w := &network{random: rand.New(rand.NewPCG(seed, 1)), now: time.Second}
	for rank := range n {
		nd := &node{network: w}
		nd.chase = Chase{Self: rank, Ranks: n, Send: func(to int, s *Signal) {
			if w.sent++; w.random.Float64() >= w.loss {
				late := time.Duration(w.random.Int64N(int64(w.delay + 1)))
				w.flying = append(w.flying, flying{w.now + late, rank, to, s.Append(nil)})
			}
		}}
		w.nodes = append(w.nodes, nd)
	}
	return w
}

// waits lets a rank wait in a call for other ranks, or compute if there are none.
func (n *network) waits(rank int, call uint32, others ...int) {
	x := &n.nodes[rank].wait
	x.Forget()
	*x = Wait{Envelope: transport.Envelope{Seq: call}, For: others, Since: n.now, Blocking: true}
}

func (nd *node) position(e transport.Envelope, _ int) Position {
	switch {
	case !nd.wait.Waits():
		return Position{State: NotYet}
	case nd.wait.Seq == e.Seq:
		return Position{State: Present, Wait: &nd.wait}
	}
	return Position{State: NotYet, Busy: true, Wait: &nd.wait}
}

// run lets virtual time pass.
func (n *network) run(t *testing.T, d time.Duration) {
	t.Helper()
	const tick = 10 * time.Millisecond
	for end := n.now + d; n.now < end; n.now += tick {
		for n.deliver(t) {
		}
		if n.now%(50*time.Millisecond) != 0 {
			continue
		}
		for _, nd := range n.nodes {
			if x := &nd.wait; !nd.stopped {
				if x.Waits() && (n.now-x.Asked() >= AskAfter || nd.chase.HasUnasked(x, n.now)) {
					nd.chase.Ask(x, n.now)
				}
				nd.chase.SendNews(nil, nd.position, n.now)
			}
		}
	}
}

// deliver delivers the signals that are due, and reports whether there were any. Each rank asks few
// ranks and tells few news, so that few signals are under way at any time.
func (n *network) deliver(t *testing.T) bool {
	t.Helper()
	due := slices.Clone(n.flying)
	n.flying = slices.DeleteFunc(n.flying, func(f flying) bool { return f.at <= n.now })
	due = slices.DeleteFunc(due, func(f flying) bool { return f.at > n.now })
	if len(due) > 20*len(n.nodes) {
		t.Fatalf("at %v %d signals arrive at once at %d ranks", n.now, len(due), len(n.nodes))
	}
	for _, f := range due {
		nd := n.nodes[f.to]
		if nd.stopped {
			continue
		}
		s, err := Decode(f.data, len(n.nodes))
		if err != nil {
			t.Fatal(err)
		}
		if s.Kind == Ask {
			nd.chase.Answer(f.from, &s, nd.position(s.Envelope, f.from), n.now)
			continue
		}
		x := &nd.wait
		if !x.Waits() || x.Seq != s.Seq {
			x = nil
		}
		nd.chase.RecordTell(f.from, &s, x, false, n.now)
		nd.chase.SendNews(x, nd.position, n.now)
	}
	return len(due) > 0
}

// twin holds the ranks that a rank may blame, computed with global knowledge: among the ranks that
// its chains of waits reach, the silent ranks and the ranks that do not wait.
type twin struct{ silent, absent []int }

func (n *network) twin(rank int) (out twin) {
	seen := make(map[int]bool)
	var visit func(r int)
	visit = func(r int) {
		if seen[r] {
			return
		}
		seen[r] = true
		nd := n.nodes[r]
		switch {
		case nd.stopped:
			out.silent = append(out.silent, r)
			return
		case !nd.wait.Waits():
			out.absent = append(out.absent, r)
			return
		}
		for _, next := range nd.wait.For {
			visit(next)
		}
	}
	visit(rank)
	return out
}

// cycle returns the cycle that is reached from a rank along the first rank of each Wait.For, with
// the lowest rank first. mixed reports whether the calls in the cycle differ.
func (n *network) cycle(rank int) (ring []int, mixed bool) {
	for range n.nodes {
		rank = n.nodes[rank].wait.For[0]
	}
	for first := rank; ; {
		ring = append(ring, rank)
		next := n.nodes[rank].wait.For[0]
		mixed = mixed || n.nodes[rank].wait.Seq != n.nodes[next].wait.Seq
		if rank = next; rank == first {
			break
		}
	}
	least := slices.Index(ring, slices.Min(ring))
	return append(slices.Clone(ring[least:]), ring[:least]...), mixed
}

// check compares the ranks that each rank blames with the result of twin.
func (n *network) check(single bool) error {
	for rank, nd := range n.nodes {
		if nd.stopped || !nd.wait.Waits() {
			continue
		}
		got, why := nd.chase.Blame(&nd.wait, n.now)
		want := n.twin(rank)
		var ring []int
		mixed := false
		if single && len(want.silent)+len(want.absent) == 0 {
			ring, mixed = n.cycle(rank)
		}
		ok := false
		switch {
		case len(want.silent) > 0 && why == Silent:
			ok = len(got) == 1 && slices.Contains(want.silent, got[0])
		case len(want.silent) > 0 && !single && why == Slow || len(want.silent) > 0 && len(want.absent) == 0:
			ok = false
		case len(want.absent) > 0:
			ok = why == Absent && len(got) == 1 && slices.Contains(want.absent, got[0])
		case !single:
			ok = why == Deadlock || why == Inside || why == Slow
		case mixed:
			ok = why == Deadlock && slices.Equal(got, ring)
		default:
			ok = why == Inside || why == Slow // signals were lost before
		}
		if !ok {
			return fmt.Errorf("at %v rank %d blames %v (%d), end %+v; want %+v, round %v, mixed %v", n.now, rank, got, why, nd.chase.End(&nd.wait, n.now), want, ring, mixed)
		}
	}
	return nil
}

// change gives some ranks other waits, and sometimes stops a rank.
func (w *network) change(ways int) {
	n := len(w.nodes)
	for rank := range n {
		if w.nodes[rank].stopped || w.random.IntN(2) == 0 {
			continue
		}
		var others []int
		if w.random.IntN(5) > 0 {
			for range 1 + w.random.IntN(ways) {
				others = append(others, (rank+1+w.random.IntN(n-1))%n)
			}
		}
		w.waits(rank, uint32(1+w.random.IntN(3)), others...)
	}
	if w.random.IntN(4) == 0 {
		w.nodes[w.random.IntN(n)].stopped = true
	}
}

// For any waits, and any loss and delay of signals: soon after signals are reliable again, each
// rank blames ranks that twin finds with global knowledge.
func TestChase(t *testing.T) {
	for _, ways := range []int{1, 2} {
		for seed := range uint64(150) {
			w := newNet(seed, 2+int(seed)%9)
			for range 4 {
				w.change(ways)
				w.loss, w.delay = 0.3, 80*time.Millisecond
				w.run(t, time.Second)
				w.loss, w.delay = 0, time.Millisecond
				w.run(t, 4*time.Second)
				if err := w.check(ways == 1); err != nil {
					t.Fatalf("seed %d, ways %d: %v", seed, ways, err)
				}
			}
		}
	}
}

// The number of asks of a rank depends on its waits and not on the number of ranks. The end of the
// longest possible chain reaches all ranks soon, with a few signals of each rank.
func TestChaseCostsLittle(t *testing.T) {
	const n = 200
	w := newNet(1, n)
	for rank := 1; rank < n; rank++ {
		w.waits(rank, 1, rank-1)
	}
	w.run(t, 300*time.Millisecond)
	if err := w.check(true); err != nil {
		t.Fatal(err)
	}
	first := w.sent
	w.run(t, 2*time.Second)
	if asks := (w.sent - first) / n; asks > 2*11 { // 11 asks and as many answers
		t.Errorf("%d signals of a rank in 2 s", asks)
	}
	if first > 20*n {
		t.Errorf("%d signals until the end of a chain of %d was known", first, n)
	}
}

// In a cycle within one call no rank is blamed, and the signals soon cease.
func TestCycle(t *testing.T) {
	const n = 3 * newsPath
	w := newNet(1, n)
	for rank := range n {
		w.waits(rank, 1, (rank+n-1)%n)
	}
	w.run(t, 6*time.Second)
	if err := w.check(true); err != nil {
		t.Fatal(err)
	}
	before := w.sent
	w.run(t, 2*time.Second)
	if each := (w.sent - before) / n; each > 2*11 {
		t.Errorf("%d signals of a rank in 2 s", each)
	}
}

// Information with more hops than there are ranks circulates in a cycle, and is dropped.
func TestLostOrigin(t *testing.T) {
	w := newNet(1, 4)
	w.waits(0, 1, 1)
	nd := w.nodes[0]
	nd.chase.Ask(&nd.wait, w.now)
	for _, hops := range []int32{2, 3, 4} {
		said := Signal{Kind: Tell, Envelope: nd.wait.Envelope, At: w.now, State: Present,
			End: End{Cause: Absent, Rank: 3, Hops: hops, Slow: noLink(), Path: []int32{2}}}
		nd.chase.RecordTell(1, &said, &nd.wait, false, w.now)
		if got, why := nd.chase.Blame(&nd.wait, w.now); (why == Absent) != (hops < 4) {
			t.Errorf("%d waits on the way: blames %v (%d)", hops, got, why)
		}
	}
}

// A rank's report that another rank is silent does not count if the reported rank answers this
// rank.
func TestSlowLinkIsNobodysSilence(t *testing.T) {
	w := newNet(1, 4)
	for rank := range 3 {
		w.waits(rank, 1, rank+1)
	}
	w.waits(3, 1, 2)
	nd := w.nodes[0]
	nd.chase.Ask(&nd.wait, w.now)
	claim := Signal{Kind: Tell, Envelope: nd.wait.Envelope, At: w.now, State: Present,
		End: End{Cause: Silent, Rank: 3, Hops: 2, Slow: Link{2, 3, time.Second}, Path: []int32{2, 3}}}
	nd.chase.RecordTell(1, &claim, &nd.wait, false, w.now)
	if !nd.chase.HasUnasked(&nd.wait, w.now) || nd.chase.Settled(&nd.wait, w.now) {
		t.Fatal("the silent rank is not asked")
	}
	w.now += 50 * time.Millisecond
	nd.chase.Ask(&nd.wait, w.now)
	answer := Signal{Kind: Tell, Envelope: nd.wait.Envelope, At: w.now, State: Present, End: End{Rank: 3, Slow: noLink()}}
	nd.chase.RecordTell(3, &answer, &nd.wait, false, w.now+time.Millisecond)
	nd.chase.RecordTell(1, &claim, &nd.wait, false, w.now)
	nd.chase.RecordTell(1, &Signal{Kind: Tell, Envelope: nd.wait.Envelope, At: w.now, State: Present, End: claim.End}, &nd.wait, false, w.now)
	w.now += 200 * time.Millisecond // rank 2 does not answer
	if got, why := nd.chase.Blame(&nd.wait, w.now); why != Slow || !slices.Equal(got, []int{2}) {
		t.Errorf("blames %v (%d), want rank 2, which is slow", got, why)
	}
}

// A rank that gets ever new tells passes on few of them at once, and the last one at the next
// periodic call.
func TestNewsIsLimited(t *testing.T) {
	w := newNet(1, 3)
	w.waits(1, 1, 2)
	nd := w.nodes[1]
	ask := Signal{Kind: Ask, Envelope: nd.wait.Envelope, At: w.now}
	nd.chase.Answer(0, &ask, nd.position(ask.Envelope, 0), w.now)
	w.flying = nil
	causes := []Cause{Absent, Inside}
	for i := range 101 {
		said := Signal{Kind: Tell, Envelope: nd.wait.Envelope, State: Present, End: End{Cause: causes[i%2], Rank: 2, Slow: noLink()}}
		nd.chase.RecordTell(2, &said, &nd.wait, false, w.now)
		nd.chase.SendNews(&nd.wait, nd.position, w.now)
	}
	if len(w.flying) != maxNews {
		t.Errorf("%d tells of news for one ask, want %d", len(w.flying), maxNews)
	}
	nd.chase.SendNews(nil, nd.position, w.now)
	if len(w.flying) != maxNews+1 {
		t.Error("the periodic call sends no news")
	}
}
