package shm

import (
	"math/bits"
	"runtime"
	"time"

	"github.com/elrun/elrun/internal/kernel"
)

// How often a rank polls before it lets others run, and for how long it does that before
// it sleeps. Within a call ranks wait microseconds for each other, and it takes tens of
// them to wake up; for one that computes or has died they wait long.
const (
	polls    = 200
	yieldFor = time.Millisecond
	// rounds is how often it lets other processes run before it does so with other
	// goroutines, which takes longer; fewer if the processes take more than turnFor.
	rounds  = 16
	turnFor = 100 * time.Microsecond
	// nap is how long it sleeps at a time where there are no bells.
	nap = 100 * time.Microsecond
)

// publish advances a word of this rank and wakes who sleeps for it. It swaps, as the look at
// the sleepers must come after that: a Store is not as strong under the race detector, which
// lets the processor look first.
func (l *Lane) publish(w *word, value uint32) {
	w.value.Swap(value)
	if w.sleepers.Load() != 0 {
		l.segment.wake(w.sleepers.Swap(0))
	}
}

// wake rings for those of the ranks whose bits are set.
func (s *Segment) wake(ranks uint64) {
	for ; ranks != 0; ranks &= ranks - 1 {
		if r := bits.TrailingZeros64(ranks); r < len(s.ropes) && s.ropes[r] != nil {
			s.ropes[r].ring()
		}
	}
}

// reached reports whether the word has come to target.
func (w *word) reached(target uint32) bool { return int32(w.value.Load()-target) >= 0 }

// await waits until a word of a rank has come to target.
func (l *Lane) await(w *word, target uint32, rank int) error {
	if w.reached(target) {
		return nil
	}
	return l.awaitLong(w, target, rank)
}

func (l *Lane) awaitLong(w *word, target uint32, rank int) error {
	if !l.segment.patient {
		for range polls {
			if w.reached(target) {
				return nil
			}
			pause()
		}
	}
	begun := time.Now()
	// Ranks that are goroutines of one process have no bells: they are Go's to place.
	if l.segment.bell != nil && begun.Sub(l.looked) >= lookEvery {
		l.looked = begun
		l.evenOut()
	}
	for turn := begun; turn.Sub(begun) < yieldFor; turn = time.Now() {
		for i := 0; i < rounds && (i == 0 || time.Since(turn) < turnFor); i++ {
			if w.reached(target) {
				return nil
			}
			kernel.Yield()
		}
		if err := l.over(w, target, rank); err != nil {
			return err
		}
		runtime.Gosched()
	}
	l.watch(rank)
	defer l.watch(-1)
	return l.sleep(w, target, rank)
}

// lookEvery is the least time between two looks of a rank at where the others are. A move
// takes some tens of microseconds.
const lookEvery = 500 * time.Microsecond

// evenOut moves this rank to another core if two more ranks were last seen on its own than
// there. The kernel does that, too, but some milliseconds later, as ranks that wait look
// busy to it; until then they wait while others could run. Only the highest rank of a core
// moves: if several did they might meet again.
func (l *Lane) evenOut() {
	core, ok := coreHere()
	if !ok {
		return
	}
	l.mine().core.Store(core + 1)
	var on census
	for r, p := range l.places {
		c := p.core.Load() - 1
		if c == core && r > l.rank {
			return
		}
		on.add(c)
	}
	if on.leave(core) {
		if core, ok = coreHere(); ok {
			l.mine().core.Store(core + 1)
		}
	}
}

// over returns why a wait is in vain.
func (l *Lane) over(w *word, target uint32, rank int) error {
	if l.segment.revoked.Load() {
		return ErrRevoked
	}
	if l.segment.gone[l.ranks[rank]].Load() && !w.reached(target) { // the last that it did counts
		return &GoneError{rank}
	}
	return nil
}

// sleep waits until the bell is rung for the word. The bit of this rank is there before
// the last look at the word, and who changes the word looks at the bits afterwards, so that
// one of the two sees the other.
func (l *Lane) sleep(w *word, target uint32, rank int) error {
	s := l.segment
	mine := uint64(1) << s.rank
	defer w.sleepers.And(^mine)
	for {
		heard := s.heard()
		if s.bell != nil {
			w.sleepers.Or(mine)
		}
		if w.reached(target) {
			return nil
		}
		if err := l.over(w, target, rank); err != nil {
			return err
		}
		s.sleep(heard)
	}
}

// heard is that of the bell, if there is one.
func (s *Segment) heard() uint64 {
	if s.bell == nil {
		return 0
	}
	return s.bell.heard()
}

// sleep is that of the bell; without one it takes a nap.
func (s *Segment) sleep(heard uint64) {
	if s.bell == nil {
		time.Sleep(nap)
		return
	}
	s.bell.sleep(heard)
}
