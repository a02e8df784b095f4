package parts_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/elastic/parts"
	"github.com/elrun/elrun/internal/race"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/testing/simnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program is a job whose common state is the sum of all pieces. The next value of a piece depends on
// the attempt, so that a value of a failed attempt breaks the sum. Each round checks the sum.
type program struct {
	pieces, copies int
	rounds         int64
	pace           time.Duration
	weight         func(index int) int // nil: equal
	hook           func(t *elastic.Turn, round int64, g *elastic.Group)

	mu       sync.Mutex
	finished int
	left     int // of these, asked to leave
	lost     int // losses that were seen, without those at the start
	total    parts.Stats
}

// lengths returns the lengths of the pieces, which differ; one is empty.
func (j *program) lengths() []int {
	lengths := make([]int, j.pieces)
	for k := range lengths {
		lengths[k] = (3 * k) % 5
	}
	return lengths
}

// train is the program of each member.
func (j *program) train(ctx context.Context, g *elastic.Group) error {
	o := parts.Options{Copies: j.copies}
	if j.weight != nil {
		o.Weight = j.weight(g.Self().Index)
	}
	p := parts.New[int64](j.lengths(), o)
	var round int64
	w := make([]int64, 1)
	for t := range g.Steps(ctx, elastic.Vectors(&round, w, p.Tag()), j.rounds) {
		if j.hook != nil {
			j.hook(t, round, g)
		}
		base, err := j.settle(ctx, t, p, w[0], round)
		if err != nil {
			continue
		}
		pause(ctx, j.pace)
		// The sums before the round and of the changes in it, and the number of owners.
		sums := make([]int64, 3)
		for k, value := range p.Own() {
			sums[2]++
			next := p.Next(k)
			for i := range value {
				next[i] += int64(k+i)*1000 + round*100 + int64(t.Epoch())
				sums[0] += value[i]
				sums[1] += next[i] - value[i]
			}
		}
		if p.Replicate(ctx) != nil || collective.AllReduce(ctx, t.Comm, sums, sums, collective.Sum[int64]) != nil {
			continue
		}
		if sums[0] != base || sums[2] != int64(j.pieces) {
			t.Fail(fmt.Errorf("round %d: %d pieces have the sum %d, want %d with %d", round, sums[2], sums[0], j.pieces, base))
			continue
		}
		w[0] = base + sums[1]
		p.Commit()
		round++
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.finished++
	s := p.Stats()
	j.total.Late, j.total.Moved, j.total.Copied = j.total.Late+s.Late, j.total.Moved+s.Moved, j.total.Copied+s.Copied
	if err := g.Err(); !errors.Is(err, elastic.ErrLeft) {
		return err
	}
	j.left++
	return nil
}

// settle returns the sum of the pieces: w, or what is left after a loss.
func (j *program) settle(ctx context.Context, t *elastic.Turn, p *parts.Parts[int64], w, round int64) (int64, error) {
	lost, err := p.Settle(ctx, t)
	if err != nil || len(lost) == 0 {
		return w, err
	}
	if round > 0 {
		j.mu.Lock()
		j.lost += len(lost)
		j.mu.Unlock()
	}
	sum := []int64{0}
	for _, value := range p.Own() {
		for _, x := range value {
			sum[0] += x
		}
	}
	err = collective.AllReduce(ctx, t.Comm, sum, sum, collective.Sum[int64])
	return sum[0], err
}

// pause sleeps for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// few returns the number of runs of a test that repeats a job with different seeds: n, and a fifth of them under the race detector, which
// needs the kinds of messages and deaths, and not their times.
func few(n uint64) uint64 {
	if race.Enabled {
		return (n + 4) / 5
	}
	return n
}

// network returns a network whose links have a small latency, which differs between links.
func network(seed uint64) *simnet.Network {
	return simnet.New(simnet.Config{Seed: seed, Link: simnet.Link{Delay: time.Millisecond, Lag: time.Millisecond}})
}

func TestGroups(t *testing.T) {
	for n := 1; n <= 4; n++ {
		for copies := range 3 {
			synctest.Test(t, func(t *testing.T) {
				j := program{pieces: 13, copies: copies, rounds: 10}
				cluster.Start(t, n, network(1), j.train).Wait()
				if j.finished != n || j.lost > 0 || j.total.Moved > 0 {
					t.Errorf("%d members with %d copies: %d finished, %d pieces lost, %d elements moved", n, copies, j.finished, j.lost, j.total.Moved)
				}
			})
		}
	}
}

// A member dies when it sends message number k of its second round and those after it. With one copy
// nothing is lost, and the sums of the pieces are right whether the members committed the round of the
// death, or tried it again, or some committed it and the others missed that.
func TestKillAtEveryMessage(t *testing.T) {
	var late atomic.Int64
	for _, n := range []int{3, 4} {
		for victim := range n {
			for seed := range few(5) {
				kills(t, n, victim, seed, &late)
			}
		}
	}
	t.Logf("%d missed commits", late.Load())
	if want := 10 * int64(few(5)); late.Load() < want {
		t.Errorf("members missed %d commits, want %d at least: the test does not reach them", late.Load(), want)
	}
}

// kills kills a member at one message after the other, until it survives.
func kills(t *testing.T, n, victim int, seed uint64, late *atomic.Int64) {
	for k, survived := int64(1), false; !survived; k++ {
		synctest.Test(t, func(t *testing.T) {
			var begun atomic.Bool
			var sent atomic.Int64
			j := program{pieces: 7, copies: 1, rounds: 4, hook: func(_ *elastic.Turn, round int64, _ *elastic.Group) {
				if round == 1 {
					begun.Store(true)
				}
			}}
			net := network(seed)
			job := cluster.Start(t, n, net, j.train)
			name := elastic.ID(fmt.Sprintf("member-%d", victim))
			net.KillWhen(func(m simnet.Message) bool {
				if m.Plane != simnet.Data || m.From != name || !begun.Load() || sent.Add(1) != k {
					return false
				}
				job.Kill(victim)
				return true
			})
			job.Wait()
			if survived = sent.Load() < k; j.lost > 0 {
				t.Errorf("%d members, rank %d dies at message %d: %d pieces lost", n, victim, k, j.lost)
			}
			late.Add(int64(j.total.Late))
		})
	}
}

// Members that are asked to leave hand over, also without copies and several at once, and newcomers get
// their part.
func TestLeave(t *testing.T) {
	for seed := range few(20) {
		synctest.Test(t, func(t *testing.T) {
			leave := map[int]int64{int(seed % 4): 3, int(seed+1) % 4: 3 + int64(seed/4)}
			j := program{pieces: 11, rounds: 60, pace: 20 * time.Millisecond}
			j.hook = func(_ *elastic.Turn, round int64, g *elastic.Group) {
				if at, is := leave[g.Self().Index]; is && round == at {
					g.Leave()
				}
			}
			job := cluster.Start(t, 4, network(seed), j.train)
			<-time.After(400 * time.Millisecond)
			job.Join()
			job.Wait()
			if j.finished != 5 || j.left != 2 || j.lost > 0 || j.total.Moved == 0 {
				t.Errorf("seed %d: %d members finished, %d of them left, %d pieces lost, %d elements moved", seed, j.finished, j.left, j.lost, j.total.Moved)
			}
		})
	}
}

// A member without pieces dies at each of its messages while another one hands over its pieces.
// Nothing is lost, though there are no copies: each holder keeps its pieces until all have theirs.
func TestKillWhileMoving(t *testing.T) {
	for seed := range few(2) {
		for k, survived := int64(1), false; !survived; k++ {
			synctest.Test(t, func(t *testing.T) {
				var begun atomic.Bool
				var sent atomic.Int64
				j := program{pieces: 7, rounds: 6}
				j.weight = func(index int) int { return 1 + 1000*min(1, index) }
				j.hook = func(_ *elastic.Turn, round int64, g *elastic.Group) {
					if round == 1 && g.Self().Index == 2 {
						begun.Store(true)
						g.Leave()
					}
				}
				net := network(seed)
				job := cluster.Start(t, 4, net, j.train)
				net.KillWhen(func(m simnet.Message) bool {
					if m.Plane != simnet.Data || m.From != "member-0" || !begun.Load() || sent.Add(1) != k {
						return false
					}
					job.Kill(0)
					return true
				})
				job.Wait()
				survived = sent.Load() < k
				if j.lost > 0 || j.total.Moved == 0 {
					t.Errorf("seed %d, message %d: %d pieces lost, %d elements moved", seed, k, j.lost, j.total.Moved)
				}
			})
		}
	}
}

// All members leave: the last ones keep what they hold, and the loop ends.
func TestAllLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := program{pieces: 5, rounds: 1000, pace: 10 * time.Millisecond}
		j.hook = func(_ *elastic.Turn, round int64, g *elastic.Group) {
			if round == 5 {
				g.Leave()
			}
		}
		cluster.Start(t, 3, network(1), j.train).Wait()
		if j.left != 3 || j.lost > 0 {
			t.Errorf("%d members left, %d pieces lost", j.left, j.lost)
		}
	})
}

// Members die, join and leave at any time. Without copies pieces are lost, and with one copy none as
// long as the members die one after the other. The sums are right in each round.
func TestChurn(t *testing.T) {
	var without, late int
	for seed := range few(40) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			j := program{pieces: 12, copies: int(seed % 2), rounds: 120, pace: 10 * time.Millisecond, weight: func(index int) int { return 1 + index%3 }}
			job := cluster.Start(t, 4, network(seed), j.train)
			victims := r.Perm(4)
			next := func() { <-time.After(time.Duration(200_000+r.IntN(150_000)) * time.Microsecond) }
			next()
			job.Kill(victims[0])
			next()
			newcomer := job.Join()
			next()
			job.Kill(newcomer)
			next()
			job.Kill(victims[1])
			job.Wait()
			late += j.total.Late
			if j.copies == 0 {
				without += j.lost
			} else if j.lost > 0 {
				t.Errorf("seed %d: %d pieces lost", seed, j.lost)
			}
		})
	}
	if without == 0 {
		t.Error("without copies no piece was lost")
	}
	t.Logf("%d missed commits", late)
}

// The owner of pieces dies, and then a member without pieces, also while the others settle or compute the
// round again. The program makes the pieces anew in each attempt until one is committed.
func TestLossStaysUntilCommit(t *testing.T) {
	for seed := range few(30) {
		synctest.Test(t, func(t *testing.T) {
			j := program{pieces: 9, rounds: 30, pace: 10 * time.Millisecond}
			j.weight = func(index int) int { return 1 + 1000*(index&1) }
			net := network(seed)
			job := cluster.Start(t, 5, net, j.train)
			<-time.After(150 * time.Millisecond)
			job.Kill(1)
			<-time.After(time.Duration(seed) * 2 * time.Millisecond)
			job.Kill(2)
			job.Wait()
			if j.lost == 0 {
				t.Error("nothing was lost")
			}
		})
	}
}

// A peer with other pieces, and a program that makes its calls in another order, get an error.
func TestMistakes(t *testing.T) {
	run := func(n int, body func(p *parts.Parts[int64], t *elastic.Turn, step *int64)) (errs []error) {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			cluster.Start(t, n, network(1), func(ctx context.Context, g *elastic.Group) error {
				p := parts.New[int64]([]int{1, 2 + g.Self().Index}, parts.Options{})
				var step int64
				for t := range g.Steps(ctx, elastic.Vectors(&step, p.Tag()), 3) {
					body(p, t, &step)
				}
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, g.Err())
				return nil
			}).Wait()
		})
		return errs
	}
	for name, c := range map[string]struct {
		n    int
		body func(p *parts.Parts[int64], t *elastic.Turn, step *int64)
		want string
	}{
		"other pieces": {2, func(p *parts.Parts[int64], t *elastic.Turn, _ *int64) { _, _ = p.Settle(context.Background(), t) }, "other pieces"},
		"no Settle": {1, func(p *parts.Parts[int64], t *elastic.Turn, step *int64) {
			if err := p.Replicate(context.Background()); err != nil {
				t.Fail(err)
			}
		}, "without a Settle"},
		"no Replicate": {1, func(p *parts.Parts[int64], t *elastic.Turn, step *int64) {
			_, _ = p.Settle(context.Background(), t)
			p.Commit()
			*step++
		}, "without a Replicate"},
	} {
		for _, err := range run(c.n, c.body) {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", name, err, c.want)
			}
		}
	}
	for _, o := range []parts.Options{{Copies: -1}, {Weight: -1}, {Weight: parts.MaxWeight + 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("New with %+v does not panic", o)
				}
			}()
			parts.New[int8]([]int{1}, o)
		}()
	}
}
