// Package balsim simulates how policies of loadbal share out the microbatches of a step
// among peers whose speeds change, for hundreds of peers and steps in a moment:
//
//	trace := balsim.Periodic(64, 400)
//	policy, err := loadbal.New("lbbsp-cpu")
//	...
//	run := balsim.Simulate(trace, policy)
//	fmt.Println(run.Efficiency()) // parts in a thousand of what foresight reaches
//
// Everything is integer arithmetic on numbers that come from a hash, so that a run gives
// the same figures on every machine.
package balsim

import "fmt"

// Trace says what each peer can do in each step: b microbatches take it
// max(Tau, Fixed + b*Pace), disturbed by noise.
type Trace struct {
	Name         string
	About        string // what happens, in a sentence
	Microbatches int
	Pace         [][]int64 // of [step][peer], in nanoseconds a microbatch
	Fixed, Tau   []int64   // by peer, in nanoseconds; nil for none
	Noise        int64     // standard deviation of the times, parts in a thousand
	Seed         int       // of the noise
}

// Peers returns the number of peers.
func (t *Trace) Peers() int { return len(t.Pace[0]) }

// perPeer is how many microbatches there are for each peer in the traces below, and
// base the pace of an undisturbed peer of speed 1: a step takes some 32 ms.
const (
	perPeer = 32
	base    = 1_000_000
	noise   = 20 // of a busy machine: 2 %
)

// steady is a trace of equal peers.
func steady(name, about string, peers, steps int) *Trace {
	t := &Trace{Name: name, About: about, Microbatches: perPeer * peers, Noise: noise}
	for range steps {
		row := make([]int64, peers)
		for p := range row {
			row[p] = base
		}
		t.Pace = append(t.Pace, row)
	}
	return t
}

// slow multiplies the pace of a peer from a step up to before another by num/den.
func (t *Trace) slow(peer, from, to int, num, den int64) {
	for s := max(0, from); s < min(to, len(t.Pace)); s++ {
		t.Pace[s][peer] = t.Pace[s][peer] * num / den
	}
}

// Homogeneous is a trace where nothing happens.
func Homogeneous(peers, steps int) *Trace {
	return steady("homogeneous", "equal peers, nothing happens", peers, steps)
}

// Constant is a trace of peers of different speeds that stay as they are.
func Constant(peers, steps int) *Trace {
	t := steady("constant", "speeds between 1 and 1/4 that stay", peers, steps)
	for p := range peers {
		t.slow(p, 0, steps, 256+int64(hash(1, p)%769), 256)
	}
	return t
}

// Step is a trace where one peer in four is slower by 4 between two steps.
func Step(peers, steps, from, to int) *Trace {
	t := steady("step", fmt.Sprintf("every fourth peer is 4 times slower in steps %d to %d", from, to-1), peers, steps)
	for p := 3; p < peers; p += 4 {
		t.slow(p, from, to, 4, 1)
	}
	return t
}

// Periodic is a trace where one peer in four has another job beside it, which takes half
// of its speed for a third of its own period of 24 to 60 steps.
func Periodic(peers, steps int) *Trace {
	t := steady("periodic", "every fourth peer has half its speed for a third of its own period of 24 to 60 steps", peers, steps)
	for p := 3; p < peers; p += 4 {
		period := 24 + int(hash(2, p)%37)
		for s := -int(hash(3, p) % uint64(period)); s < steps; s += period {
			t.slow(p, s, s+period/3, 2, 1)
		}
	}
	return t
}

// Wave is a trace where speeds of all peers rise and fall smoothly, by up to 2.
func Wave(peers, steps int) *Trace {
	t := steady("wave", "all speeds rise and fall by up to 2, each with its own period of 40 to 100 steps", peers, steps)
	for p := range peers {
		half := 20 + int(hash(4, p)%31)
		for s := range steps {
			at := (s + int(hash(5, p)%100)) % (2 * half)
			t.slow(p, s, s+1, 256+256*int64(min(at, 2*half-at))/int64(half), 256)
		}
	}
	return t
}

// Walk is a trace where the speed of each peer changes by about 2 % in each step, at
// random and between 1 and 1/4.
func Walk(peers, steps int) *Trace {
	t := steady("random walk", "all speeds change by about 2 % in each step, between 1 and 1/4", peers, steps)
	for p := range peers {
		pace := int64(2 * base)
		for s := range steps {
			pace = max(base, min(4*base, pace+pace*20*normal(6, p, s)/1_000_000))
			t.Pace[s][p] = pace
		}
	}
	return t
}

// Bursts is a trace where each peer is slower by 3 for 1 to 8 steps, once in about a
// thousand steps: with 64 peers every sixteenth step is the first of a burst.
func Bursts(peers, steps int) *Trace {
	t := steady("bursts", "each peer is 3 times slower for 1 to 8 steps, about once in 1,000 steps", peers, steps)
	for p := range peers {
		for s := 0; s < steps; s++ {
			if h := hash(7, p, s); h%1000 == 0 {
				long := 1 + int(h/1000%8)
				t.slow(p, s, s+long, 3, 1)
				s += long
			}
		}
	}
	return t
}

// FixedCost is a trace where most of the time does not depend on the share, and differs
// between peers as their speeds do.
func FixedCost(peers, steps int) *Trace {
	t := steady("fixed cost", "a part of the time of 20 to 80 microbatches does not depend on the share; speeds between 1 and 1/2", peers, steps)
	t.Fixed = make([]int64, peers)
	for p := range peers {
		t.Fixed[p] = base * (20 + int64(hash(8, p)%61))
		t.slow(p, 0, steps, 256+int64(hash(9, p)%257), 256)
	}
	return t
}

// Saturated is a trace of accelerators: the fast ones take the same time for an equal
// share as for somewhat more, so that they seem to be slow.
func Saturated(peers, steps int) *Trace {
	t := Constant(peers, steps)
	t.Name, t.About = "saturated", "speeds between 1 and 1/4, and up to 40 to 60 microbatches take a peer of speed 1 the same time"
	t.Tau = make([]int64, peers)
	for p := range peers {
		t.Tau[p] = base * (40 + int64(hash(11, p)%21))
	}
	return t
}

// All returns every trace of this package.
func All(peers, steps int) []*Trace {
	return []*Trace{
		Homogeneous(peers, steps), Constant(peers, steps), Step(peers, steps, steps/4, steps/2),
		Periodic(peers, steps), Wave(peers, steps), Walk(peers, steps), Bursts(peers, steps),
		FixedCost(peers, steps), Saturated(peers, steps),
	}
}

// hash mixes numbers into one that looks random (splitmix64).
func hash(numbers ...int) uint64 {
	h := uint64(0)
	for _, n := range numbers {
		h += 0x9e3779b97f4a7c15 * (uint64(n) + 1)
		h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
		h = (h ^ h>>27) * 0x94d049bb133111eb
		h ^= h >> 31
	}
	return h
}

// normal is about normally distributed, with a standard deviation of 1000.
func normal(numbers ...int) int64 {
	// The sum of 12 numbers, even between 0 and 999, has a deviation of 1000. A hash has
	// 6 of them.
	sum := int64(-6 * 999)
	for _, h := range []uint64{hash(numbers...), hash(append(numbers, 1)...)} {
		for range 6 {
			sum += int64(h % 1000)
			h /= 1000
		}
	}
	return sum
}
