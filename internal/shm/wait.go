package shm

import (
	"runtime"
	"time"
)

// How often a rank polls before it lets others run, and for how long it does that before
// it sleeps. Within a call ranks wait microseconds for each other, and it takes tens of
// them to wake up; for one that computes or has died they wait long.
const (
	polls    = 1000
	yieldFor = time.Millisecond
	// rounds is how often it lets other processes run before it does so with other
	// goroutines, which takes longer.
	rounds = 16
	// nap is the longest sleep: a wait ends that late at most when the segment was
	// revoked just as it fell asleep.
	nap = 5 * time.Millisecond
)

// cores is how many ranks can run at the same time.
func cores() int { return runtime.NumCPU() }

// publish advances the word and wakes who sleeps for it.
func (w *word) publish(value uint32) {
	w.value.Store(value)
	w.wake()
}

func (w *word) wake() {
	if w.sleepers.Load() > 0 {
		wake(&w.value)
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
	for begun := time.Now(); time.Since(begun) < yieldFor; {
		for range rounds {
			if w.reached(target) {
				return nil
			}
			yield()
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

// sleep waits for the word in the kernel. The count of sleepers is there before the last
// look at the word, and who changes the word looks at the count afterwards, so that one
// of the two sees the other.
func (l *Lane) sleep(w *word, target uint32, rank int) error {
	w.sleepers.Add(1)
	defer w.sleepers.Add(^uint32(0))
	for {
		v := w.value.Load()
		if int32(v-target) >= 0 {
			return nil
		}
		if err := l.over(w, target, rank); err != nil {
			return err
		}
		sleep(&w.value, v, nap)
	}
}
