package steal_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/trainer/internal/ledger"
	"github.com/elrun/elrun/trainer/internal/steal"
)

// post carries notes between ranks in virtual time: late, in another order, several times, or not at all.
type post struct {
	mu       sync.Mutex
	dice     *rand.Rand
	handlers []func(from int, note []byte)
	lost     int // percent of the notes
	flying   sync.WaitGroup
}

// box is the post as a rank sees it.
type box struct {
	*post
	self int
}

func (b box) Handle(f func(from int, note []byte)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.handlers[b.self] = f
}

func (b box) Send(to int, note []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	copies := 1
	switch percent := b.dice.IntN(100); {
	case percent < b.lost:
		copies = 0
	case percent > 90:
		copies = 2
	}
	for range copies {
		delay := time.Duration(1+b.dice.IntN(5)) * time.Millisecond
		b.flying.Go(func() {
			<-time.After(delay)
			b.mu.Lock()
			f := b.handlers[to]
			b.mu.Unlock()
			f(b.self, slices.Clone(note))
		})
	}
}

// wait waits until woken receives, or for some nanoseconds.
func wait(woken <-chan struct{}, most int64) {
	select {
	case <-woken:
	case <-time.After(time.Duration(most)):
	}
}

// Ranks of different hosts, some of which share words, empty their queues at the same time, while notes are late, lost and doubled.
// Each microbatch is computed once, and the reports tell by whom.
func TestQueuesOfHosts(t *testing.T) {
	for seed := range uint64(12) {
		synctest.Test(t, func(t *testing.T) {
			dice := rand.New(rand.NewPCG(seed, 7))
			hosts := [][]int{{0, 1, 2, 3}, {0, 0, 1, 2}, {0, 1}}[seed%3]
			ranks := len(hosts)
			p := &post{dice: rand.New(rand.NewPCG(seed, 8)), handlers: make([]func(int, []byte), ranks), lost: int(seed) % 2 * 20}
			started := time.Now()
			b := make(board, 2) // ranks 0 and 1, if they are of one host
			var all []*steal.Queue
			for r := range ranks {
				q := &steal.Queue{Allowed: true, Far: true, FirstCall: firstOf, Now: func() int64 { return int64(time.Since(started)) },
					Wait: wait, Broken: func() error { return nil }}
				words := place{nil, r, nil}
				if hosts[1] == 0 && r < 2 {
					words.board = b
				}
				q.Enter(hosts, r, words, box{p, r}, nil)
				all = append(all, q)
			}
			sum := 0
			for range 15 {
				sum += emptiedTogether(t, all, dice)
			}
			if sum == 0 {
				t.Errorf("seed %d: nothing was stolen", seed)
			}
			p.flying.Wait()
		})
	}
}

// emptiedTogether lets the ranks of all queues make a try at a step with a slow rank, and returns the number of stolen microbatches.
func emptiedTogether(t *testing.T, all []*steal.Queue, dice *rand.Rand) (stolen int) {
	t.Helper()
	ranks, microbatches := len(all), 20+dice.IntN(100)
	shares, _ := ledger.Assign(make([]ledger.Set, ranks), nil, microbatches)
	slow := dice.IntN(ranks)
	got, reports := make([]ledger.Set, ranks), make([]steal.Report, ranks)
	var running sync.WaitGroup
	for r, q := range all {
		pace, late := 10*time.Millisecond, time.Duration(dice.IntN(20))*time.Millisecond
		if r == slow {
			pace *= 8
		}
		running.Go(func() {
			<-time.After(late)
			q.Open(shares, divided(shares[r].Without(nil), 1), 1)
			got[r] = computed(t, q, ledger.NewSet(microbatches), pace)
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
				t.Fatalf("rank %d is taken to hold %v, and holds %v", r, told[r].Ranges(), got[r].Ranges())
			}
		}
		stolen += q.Stolen()
	}
	once(t, got, microbatches)
	return stolen
}

// computed empties a queue in virtual time.
func computed(t *testing.T, q *steal.Queue, held ledger.Set, pace time.Duration) ledger.Set {
	for {
		micros, _, err := q.Next(held.Len())
		if err != nil {
			t.Error(err)
		}
		if len(micros) == 0 {
			return held
		}
		<-time.After(pace * time.Duration(len(micros)))
		for _, k := range micros {
			held.Add(k)
		}
	}
}

// A rank whose session has ended does not wait for an answer that never comes.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &post{dice: rand.New(rand.NewPCG(1, 1)), handlers: make([]func(int, []byte), 2)}
		started := time.Now()
		ended := errors.New("ended")
		var all []*steal.Queue
		for r := range 2 {
			q := &steal.Queue{Allowed: true, Far: true, FirstCall: firstOf, Wait: wait, Now: func() int64 { return int64(time.Since(started)) }}
			q.Broken = func() error {
				if time.Since(started) > 10*time.Second {
					return ended
				}
				return nil
			}
			q.Enter([]int{0, 1}, r, place{nil, r, nil}, box{p, r}, nil)
			all = append(all, q)
		}
		shares, _ := ledger.Assign(make([]ledger.Set, 2), nil, 40)
		var owner sync.WaitGroup
		for r, q := range all {
			q.Open(shares, divided(shares[r].Without(nil), 1), 1)
		}
		owner.Go(func() {
			for range 3 {
				_, _, _ = all[1].Next(0)
				<-time.After(time.Second)
			}
		})
		// The thief asks, and the victim answers that, but no take.
		told := p.handlers[1]
		p.handlers[1] = func(from int, note []byte) {
			if note[0] == 1 {
				told(from, note)
			}
		}
		held := computed(t, all[0], ledger.NewSet(40), 10*time.Millisecond)
		if took := time.Since(started); held.Len() != 20 || took < 10*time.Second || took > 15*time.Second {
			t.Errorf("it holds %v after %v", held.Ranges(), took)
		}
		owner.Wait()
		p.flying.Wait()
	})
}

// Between hosts a rank that is gone may have computed any microbatch.
func TestSuspectsOfAllHosts(t *testing.T) {
	q := &steal.Queue{Allowed: true, Far: true}
	q.Enter([]int{0, 1, 1}, 0, place{}, box{&post{handlers: make([]func(int, []byte), 3)}, 0}, nil)
	for r, s := range q.Suspects([]ledger.Set{{1}, {2}, {4}}) {
		if !slices.Equal(s, ledger.Set{7}) {
			t.Errorf("rank %d: %v", r, s)
		}
	}
	if q.Enter([]int{0, 0, 0}, 0, place{}, nil, nil); q.Distant() {
		t.Error("notes within a host")
	}
}
