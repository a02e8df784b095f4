package transfer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/internal/pause"
)

const linkRate = 1 << 20 // in bytes a second

// four returns a job with four donors.
func four(t *testing.T) *world { return newWorld(t, 4, linkRate, Config{}) }

func TestFetch(t *testing.T) {
	run(t, four, func(ctx context.Context, w *world) {
		s, err := Fetch(ctx, w, w.options())
		w.fetched(s, err)
		if by, _ := w.chunks(); slices.Min(by) == 0 || s.Attempts != 1 || len(s.Odd) > 0 || !s.Replays {
			t.Errorf("all four donors should have helped at once: %v bytes, %+v", by, s)
		}
		for _, n := range w.nodes {
			if n.donor.Memory() > 100*int64(w.upd) {
				t.Errorf("%s still keeps %d bytes", n.name, n.donor.Memory())
			}
		}
	})
}

// Four donors with links of equal rate are at least three times as fast as one.
func TestFourDonorsAreFaster(t *testing.T) {
	took := map[int]time.Duration{}
	for _, n := range []int{1, 4} {
		run(t, func(t *testing.T) *world {
			w := newWorld(t, n, linkRate, Config{Chunk: 64 << 10})
			w.size = 8 << 20
			return w
		}, func(ctx context.Context, w *world) {
			s, err := Fetch(ctx, w, w.options())
			w.fetched(s, err)
			took[n] = s.Elapsed
		})
	}
	t.Logf("8 MiB from 1 donor in %v, from 4 in %v: %.2f times as fast", took[1], took[4], took[1].Seconds()/took[4].Seconds())
	if took[1] < 3*took[4] {
		t.Error("four donors should be at least three times as fast as one")
	}
}

// Whatever fault one donor has, the copy is exact, and the time is bounded by limit.
func TestFaultyDonor(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault func(n *node)
		odd   bool
		limit time.Duration // without faults the copy takes half a second
	}{
		{"dies", func(n *node) { n.budget = 100 << 10 }, false, 2 * time.Second},
		{"falls silent", func(n *node) { n.limit = 100 << 10 }, false, 2 * time.Second},
		{"is dead", func(n *node) { n.kill() }, false, 2 * time.Second},
		{"never answers", func(n *node) { n.limit = 1 }, false, 8 * time.Second},
		{"is slow", func(n *node) { n.link.rate = linkRate / 100 }, false, 2 * time.Second},
		{"is far", func(n *node) { n.latency = 300 * time.Millisecond }, false, 3 * time.Second},
		{"has another state", func(n *node) { n.spoil = true }, true, 2 * time.Second},
		{"sends wrong chunks", func(n *node) { n.damage = damageChunks }, true, 2 * time.Second},
		{"sends garbage", func(n *node) { n.damage = func(_, b []byte) { clear(b) } }, false, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, bad := range []int{0, 3} {
				run(t, four, func(ctx context.Context, w *world) {
					c.fault(w.nodes[bad])
					s, err := Fetch(ctx, w, w.options())
					w.fetched(s, err)
					if odd := slices.Equal(s.Odd, []string{w.nodes[bad].name}); odd != c.odd || len(s.Odd) > 1 {
						t.Errorf("odd: %v", s.Odd)
					}
					if s.Elapsed > c.limit || s.Attempts != 1 {
						t.Errorf("it took %v and %d attempts", s.Elapsed, s.Attempts)
					}
					w.nodes[bad].kill()
				})
			}
		})
	}
}

// damageChunks changes the bytes of chunks, but no header.
func damageChunks(req, b []byte) {
	if isChunks(req) && b[0] != '{' {
		b[len(b)-1] ^= 0x10
	}
}

// If a minority of donors forges the state, only in the chunks or also in the hashes, these donors
// are named, and none of their forged bytes are kept.
func TestForgersAreNamed(t *testing.T) {
	for _, c := range []struct{ donors, forgers int }{{3, 1}, {5, 2}} {
		for _, hashes := range []bool{false, true} {
			run(t, func(t *testing.T) *world {
				w := newWorld(t, c.donors, linkRate, Config{})
				for _, n := range w.nodes[:c.forgers] {
					if n.spoil = hashes; !hashes {
						n.damage = damageChunks
					}
				}
				return w
			}, func(ctx context.Context, w *world) {
				s, err := Fetch(ctx, w, w.options())
				w.fetched(s, err)
				named := s.Forged
				if hashes {
					named = s.Odd
				}
				for i, n := range w.nodes {
					if slices.Contains(named, n.name) != (i < c.forgers) {
						t.Errorf("%d of %d forge (hashes: %v): odd %v, forged %v", c.forgers, c.donors, hashes, s.Odd, s.Forged)
					}
				}
			})
		}
	}
}

// The chunks that a donor has sent before it dies are kept, so almost no bytes arrive twice.
func TestDeathsCostOnlyWhatWasNotSent(t *testing.T) {
	run(t, four, func(ctx context.Context, w *world) {
		for i := range 3 {
			w.nodes[i].budget = int64(100+i*50) << 10
		}
		s, err := Fetch(ctx, w, w.options())
		w.fetched(s, err)
		// Each donor that dies loses at most a part of a chunk, and work stealing costs a few chunks.
		if by, sum := w.chunks(); slices.Min(by) == 0 || sum > s.Bytes+8*16<<10 {
			t.Errorf("%v bytes of chunks, %d in all of %d", by, sum, s.Bytes)
		}
	})
}

func TestAllDonorsLoseTheSnapshot(t *testing.T) {
	run(t, four, func(ctx context.Context, w *world) {
		var hits atomic.Int32
		for _, n := range w.nodes {
			n.filter = func(req []byte) error {
				if isChunks(req) && hits.Add(1) == 5 {
					for _, n := range w.nodes {
						n.donor.Reset(n.donor.at.Load())
					}
				}
				return nil
			}
		}
		s, err := Fetch(ctx, w, w.options())
		w.fetched(s, err)
		if s.Attempts != 2 {
			t.Errorf("%d attempts, not 2", s.Attempts)
		}
	})
}

// If steps are much shorter than a round trip, the newcomer chooses a step further ahead.
func TestShortSteps(t *testing.T) {
	run(t, func(t *testing.T) *world {
		w := four(t)
		w.size, w.every = 64<<10, 200*time.Microsecond
		for _, n := range w.nodes {
			n.latency = 20 * time.Millisecond
		}
		return w
	}, func(ctx context.Context, w *world) {
		s, err := Fetch(ctx, w, w.options())
		w.fetched(s, err)
		if s.Elapsed > 3*time.Second {
			t.Errorf("it took %v", s.Elapsed)
		}
	})
}

// A newcomer uses the snapshot that another newcomer has ordered.
func TestSharedSnapshot(t *testing.T) {
	run(t, four, func(ctx context.Context, w *world) {
		other := client{w, Options{Self: "other", Donors: w.options().Donors}.withDefaults()}
		other.gather(ctx, w.options().Donors(), request{Do: opTake, Step: 13})
		s, err := Fetch(ctx, w, w.options())
		w.fetched(s, err)
		if s.Step != 13 {
			t.Errorf("snapshot of step %d, not 13", s.Step)
		}
	})
}

// Newcomers that join at the same time share snapshots, so that the donors need no more snapshots
// than they allow.
func TestManyJoiners(t *testing.T) {
	run(t, four, func(ctx context.Context, w *world) {
		done := make(chan error)
		const joiners = 6
		for i := range joiners {
			go func() {
				o := w.options()
				o.Self += string(rune('a' + i))
				s, err := Fetch(ctx, w, o)
				if err == nil && !bytes.Equal(slices.Concat(s.chunks...), w.at(s.Step)) {
					err = errors.New("wrong bytes")
				}
				done <- err
			}()
		}
		for range joiners {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// While the state rests a newcomer gets a snapshot of the present step. One resting donor is
// enough, as the other donors commit nothing without it.
func TestFetchAtRest(t *testing.T) {
	for _, resting := range []int{2, 1} {
		synctest.Test(t, func(t *testing.T) { fetchAtRest(t, resting) })
	}
}

func fetchAtRest(t *testing.T, resting int) {
	w := newWorld(t, 2, linkRate, Config{})
	w.commit()
	ctx, cancel := context.WithCancel(t.Context())
	for _, n := range w.nodes[:resting] {
		n.donor.Rest(true)
		go func() {
			for {
				select {
				case <-n.donor.Asked():
					if n.donor.Wanted(w.step) {
						w.check(n.donor.Snapshot(w.step, func(out io.Writer) error {
							_ = pause.For(ctx, 5*time.Second) // a large state
							return w.save(n)(out)
						}))
					}
				case <-ctx.Done():
					return
				}
			}
		}()
	}
	s, err := Fetch(ctx, w, w.options())
	w.fetched(s, err)
	if s.Step != w.step || s.Attempts != 1 {
		t.Errorf("snapshot of step %d while the state rests at %d", s.Step, w.step)
	}
	cancel()
	synctest.Wait()
}

// Donors that rest after the step of a snapshot, and have not hashed it yet, still provide it.
func TestRestBeforeTheHashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1, linkRate, Config{})
		d := w.nodes[0].donor
		ask(t, d, request{Do: opTake, Step: 11})
		w.commit()
		w.commit()
		synctest.Wait()
		d.mu.Lock()
		s := d.snapshots.by[11]
		s.manifest = nil
		d.mu.Unlock()
		d.Rest(true)
		time.AfterFunc(10*time.Second, func() { d.hash(s) })
		ch := &chooser{client: client{w, w.options().withDefaults()}, odd: map[string]bool{}}
		c := &copying{chooser: ch, promise: promise{step: 11, donors: w.options().Donors()}}
		if err := c.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.fetched(c.snapshot(), nil)
	})
}

// A job that stops before the promised step still provides a snapshot.
func TestRestBeforeTheStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2, linkRate, Config{})
		w.commit()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() {
			_ = pause.For(ctx, 500*time.Millisecond)
			for _, n := range w.nodes {
				n.donor.Rest(true)
			}
			for pause.For(ctx, 10*time.Millisecond) == nil {
				for _, n := range w.nodes {
					if n.donor.Wanted(w.step) {
						w.check(n.donor.Snapshot(w.step, w.save(n)))
					}
				}
			}
		}()
		s, err := Fetch(ctx, w, w.options())
		w.fetched(s, err)
		cancel()
		synctest.Wait()
	})
}

func TestFetchEndsWithContext(t *testing.T) {
	run(t, four, func(ctx context.Context, w *world) {
		why := errors.New("enough")
		ctx, cancel := context.WithTimeoutCause(ctx, 300*time.Millisecond, why)
		defer cancel()
		if _, err := Fetch(ctx, w, w.options()); !errors.Is(err, why) {
			t.Errorf("error %v", err)
		}
		o := w.options()
		o.Donors = func() []string { return nil }
		if _, err := Fetch(ctx, w, o); !errors.Is(err, why) {
			t.Errorf("without donors: error %v", err)
		}
	})
}

// Whichever donors fail, and whenever they fail, the bytes are right as long as one donor has no
// fault.
func TestFetchProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		donors := rapid.IntRange(1, 6).Draw(rt, "donors")
		size := rapid.IntRange(0, 300<<10).Draw(rt, "size")
		chunk := rapid.IntRange(1<<10, 40<<10).Draw(rt, "chunk")
		rates := rapid.SliceOfN(rapid.Int64Range(linkRate/20, linkRate), donors, donors).Draw(rt, "rates")
		faults := rapid.SliceOfN(rapid.IntRange(0, 3), donors, donors).Draw(rt, "faults")
		when := rapid.SliceOfN(rapid.Int64Range(1, 200<<10), donors, donors).Draw(rt, "when")
		faults[rapid.IntRange(0, donors-1).Draw(rt, "survivor")] = 0
		run(t, func(t *testing.T) *world {
			w := newWorld(t, donors, linkRate, Config{Chunk: chunk})
			w.size, w.upd = size, min(size, 100)
			for i, n := range w.nodes {
				n.link.rate = rates[i]
				switch faults[i] {
				case 1:
					n.budget = when[i]
				case 2:
					n.limit = when[i]
				case 3:
					n.damage = damageChunks
				}
			}
			return w
		}, func(ctx context.Context, w *world) {
			s, err := Fetch(ctx, w, w.options())
			w.fetched(s, err)
		})
	})
}
