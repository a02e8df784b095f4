// Package balsim simulates load balancing: how policies of package loadbal assign the microbatches
// of a step to peers whose speeds change. A simulation of hundreds of peers and steps takes less
// than a second:
//
//	trace := balsim.Periodic(64, 400)
//	policy, err := loadbal.New("lbbsp-cpu")
//	...
//	run := balsim.Simulate(trace, policy)
//	fmt.Println(run.Efficiency()) // thousandths of the speed with foresight
//
// All computation is in integers, and random numbers come from a hash, so that a run has the same
// results on every machine.
package balsim

import "fmt"

// Trace has the costs of each peer in each step: b microbatches take max(Tau, Fixed + b*Pace),
// plus noise.
type Trace struct {
	Name         string
	About        string // description, a sentence
	Microbatches int
	Pace         [][]int64 // by step and peer: nanoseconds per microbatch
	Fixed, Tau   []int64   // by peer, in nanoseconds; nil for none
	Noise        int64     // standard deviation of the times, in thousandths
	Seed         int       // seed of the noise
}

// Peers returns the number of peers.
func (t *Trace) Peers() int { return len(t.Pace[0]) }

// perPeer is the number of microbatches for each peer in the traces below. base is the time in
// which a peer of speed 1 computes a microbatch, in nanoseconds, so that a step takes about 32 ms.
// noise is the default of Trace.Noise.
const (
	perPeer = 32
	base    = 1_000_000
	noise   = 20 // in thousandths
)

// steady returns a trace of equal peers of constant speed.
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

// slow multiplies the pace of a peer in the steps [from, to) by num/den.
func (t *Trace) slow(peer, from, to int, num, den int64) {
	for s := max(0, from); s < min(to, len(t.Pace)); s++ {
		t.Pace[s][peer] = t.Pace[s][peer] * num / den
	}
}

// Homogeneous returns a trace of equal peers of constant speed.
func Homogeneous(peers, steps int) *Trace {
	return steady("homogeneous", "equal peers whose speeds do not change", peers, steps)
}

// Constant returns a trace of peers of different speeds, which do not change.
func Constant(peers, steps int) *Trace {
	t := steady("constant", "speeds between 1 and 1/4 that do not change", peers, steps)
	for p := range peers {
		t.slow(p, 0, steps, 256+int64(hash(1, p)%769), 256)
	}
	return t
}

// Step returns a trace in which every fourth peer is 4 times slower in the steps [from, to).
func Step(peers, steps, from, to int) *Trace {
	t := steady("step", fmt.Sprintf("every fourth peer is 4 times slower in steps %d to %d", from, to-1), peers, steps)
	for p := 3; p < peers; p += 4 {
		t.slow(p, from, to, 4, 1)
	}
	return t
}

// Periodic returns a trace in which every fourth peer shares its processor with another job. This
// job takes half of the peer's speed for a third of each period. A period has 24 to 60 steps,
// different for each peer.
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

// Wave returns a trace in which the speeds of all peers rise and fall smoothly, by a factor of up
// to 2.
func Wave(peers, steps int) *Trace {
	t := steady("wave", "all speeds rise and fall by a factor of up to 2, each with its own period of 40 to 100 steps", peers, steps)
	for p := range peers {
		half := 20 + int(hash(4, p)%31)
		for s := range steps {
			at := (s + int(hash(5, p)%100)) % (2 * half)
			t.slow(p, s, s+1, 256+256*int64(min(at, 2*half-at))/int64(half), 256)
		}
	}
	return t
}

// Walk returns a trace in which the speed of each peer changes by about 2 % in each step, at
// random between 1 and 1/4 (random walk).
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

// Bursts returns a trace in which each peer is 3 times slower for 1 to 8 steps, about once in a
// thousand steps: with 64 peers a burst begins in every sixteenth step.
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

// FixedCost returns a trace in which most of the time does not depend on the share. The fixed
// part differs between peers, and so do their speeds.
func FixedCost(peers, steps int) *Trace {
	t := steady("fixed cost", "a part of the time of 20 to 80 microbatches does not depend on the share; speeds between 1 and 1/2", peers, steps)
	t.Fixed = make([]int64, peers)
	for p := range peers {
		t.Fixed[p] = base * (20 + int64(hash(8, p)%61))
		t.slow(p, 0, steps, 256+int64(hash(9, p)%257), 256)
	}
	return t
}

// Saturated returns a trace of accelerators. A fast accelerator needs the same time for an equal
// share and for a somewhat larger share, so that its measured speed is too low.
func Saturated(peers, steps int) *Trace {
	t := Constant(peers, steps)
	t.Name, t.About = "saturated", "accelerators with speeds between 1 and 1/4: at speed 1 every share up to a limit of 40 to 60 microbatches takes the same time"
	t.Tau = make([]int64, peers)
	for p := range peers {
		t.Tau[p] = base * (40 + int64(hash(11, p)%21))
	}
	return t
}

// All returns all traces of this package.
func All(peers, steps int) []*Trace {
	return []*Trace{
		Homogeneous(peers, steps), Constant(peers, steps), Step(peers, steps, steps/4, steps/2),
		Periodic(peers, steps), Wave(peers, steps), Walk(peers, steps), Bursts(peers, steps),
		FixedCost(peers, steps), Saturated(peers, steps),
	}
}

// hash returns a pseudorandom number that depends on all numbers (SplitMix64).
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

// normal returns an approximately normally distributed number with a standard deviation of 1000.
func normal(numbers ...int) int64 {
	// The sum of 12 numbers that are uniform over 0 to 999 has a standard deviation of 1000. A
	// hash has 6 such numbers.
	sum := int64(-6 * 999)
	for _, h := range []uint64{hash(numbers...), hash(append(numbers, 1)...)} {
		for range 6 {
			sum += int64(h % 1000)
			h /= 1000
		}
	}
	return sum
}
