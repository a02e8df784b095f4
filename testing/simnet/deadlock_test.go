package simnet_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/testing/simnet"
)

// call is a call that some ranks of a random program make: an AllReduce on one of its communicators,
// or a message of one rank to another.
type call struct {
	comm     int // index of the communicator; -1 for a message
	from, to int
	bytes    int
}

// program is a sequence of calls. All ranks make the calls in which they take part in this order, so
// the program is correct even if each Send waits for its Recv. In a wrong program the rank culprit
// makes the calls wrong and wrong+1 in the opposite order, and waits for partner for ever.
type program struct {
	random           *rand.Rand
	n                int
	calls            []call
	wrong            int // -1 in a correct program
	culprit, partner int
}

// beyondBuffers is a length that does not fit into the buffers between a Send and a rank that does
// not receive, in bytes.
const beyondBuffers = 12 << 20

// newProgram returns the program of a seed.
func newProgram(seed uint64, wrong bool) *program {
	r := rand.New(rand.NewPCG(seed, 7))
	p := &program{random: r, n: 2 + r.IntN(3), wrong: -1}
	for range 4 + r.IntN(6) {
		p.calls = append(p.calls, p.anyCall())
	}
	if !wrong {
		return p
	}
	p.wrong = r.IntN(len(p.calls))
	order := r.Perm(p.n)
	p.culprit, p.partner = order[0], order[1]
	there, back := call{-1, p.partner, p.culprit, beyondBuffers}, call{-1, p.culprit, p.partner, beyondBuffers}
	pairs := [][2]call{
		{{comm: 0, bytes: 1000}, {comm: 1, bytes: 1000}},                            // communicators in another order
		{{-1, p.culprit, p.partner, 1 + r.IntN(1_000_000)}, {comm: 0, bytes: 1000}}, // a collective call before the Send
		{there, back}, // Send against Send
	}
	pair := pairs[r.IntN(len(pairs))]
	p.calls = slices.Insert(p.calls, p.wrong, pair[:]...)
	return p
}

// anyCall draws a call.
func (p *program) anyCall() call {
	order := p.random.Perm(p.n)
	if p.random.IntN(2) == 0 {
		return call{comm: p.random.IntN(3), bytes: 8 * (1 + p.random.IntN(50_000))}
	}
	return call{-1, order[0], order[1], 1 + p.random.IntN(1_500_000)}
}

// order returns the indices of the calls in the order of a rank.
func (p *program) order(rank int) []int {
	var all []int
	for i := range p.calls {
		all = append(all, i)
	}
	if p.wrong >= 0 && rank == p.culprit {
		all[p.wrong], all[p.wrong+1] = all[p.wrong+1], all[p.wrong]
	}
	return all
}

// run carries out the program at one rank, with pauses.
func (p *program) run(ctx context.Context, c *collective.Comm) error {
	rank := c.Rank()
	dup, err := collective.Dup(ctx, c)
	if err != nil {
		return err
	}
	turned, err := collective.Split(ctx, c, 0, -rank)
	if err != nil {
		return err
	}
	comms := []*collective.Comm{c, dup, turned}
	pauses := rand.New(rand.NewPCG(uint64(rank), uint64(len(p.calls))))
	for _, i := range p.order(rank) {
		pass(time.Duration(pauses.IntN(3)*pauses.IntN(3000)) * time.Millisecond)
		err := error(nil)
		switch k := p.calls[i]; {
		case k.comm >= 0:
			v := make([]float64, k.bytes/8)
			err = collective.AllReduce(ctx, comms[k.comm], v, v, collective.Sum[float64])
		case k.from == rank:
			err = collective.Send(ctx, c, k.to, 3, make([]uint8, k.bytes))
		case k.to == rank:
			err = collective.Recv(ctx, c, k.from, 3, make([]uint8, k.bytes))
		}
		if err != nil {
			return fmt.Errorf("call %d: %w", i, err)
		}
	}
	return nil
}

// anyLink draws a link with a latency from 1 to 1000 ms and a loss of up to 10 %.
func anyLink(r *rand.Rand) simnet.Link {
	return simnet.Link{Delay: time.Duration(1+r.IntN(1000)) * time.Millisecond, Lag: time.Duration(r.IntN(100)) * time.Millisecond,
		Bandwidth: []int{0, 300_000, 3_000_000}[r.IntN(3)], Retransmit: float64(r.IntN(11)) / 100}
}

// Over any link no call of a correct program fails, and a program that makes two calls in another
// order at one rank ends with an error that names the ranks that wait for each other.
func TestDeadlocksOfPrograms(t *testing.T) {
	for seed := range seeds() {
		p := newProgram(seed, seed%2 == 1)
		link := anyLink(p.random)
		inBubble(t, p.n, simnet.Config{Seed: seed, Link: link}, func(t *testing.T, b *bench) {
			errs := cluster.Run(t, p.n, p.run, cluster.Over(b.connect()), cluster.MayFail())
			if err := errors.Join(errs...); p.wrong < 0 && err != nil {
				t.Errorf("seed %d: %+v: %v", seed, link, err)
			}
			// Over the slowest links a rank may be reset before it has received the cause.
			if p.wrong >= 0 && !slices.ContainsFunc(errs, p.named) {
				t.Errorf("seed %d: %+v: %v, want a deadlock of %d and %d", seed, link, errs, p.culprit, p.partner)
			}
		})
	}
}

// named reports whether an error names the culprit as one of the ranks that wait for each other.
func (p *program) named(err error) bool {
	var d *collective.DeadlockError
	return errors.As(err, &d) && slices.ContainsFunc(d.Waits, func(w collective.DeadlockWait) bool { return w.Rank == p.culprit })
}
