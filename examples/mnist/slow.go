package main

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// slowdown multiplies the computing time of one local peer during a range of steps.
type slowdown struct {
	index       int     // elrun's index of the local peer; randomPeer for another peer in each step
	factor      float64 // factor of the time, 1 or more
	first, last int64   // first and last step, inclusive
}

// randomPeer stands for one of the local peers, drawn anew in each step. All peers draw the same one.
const randomPeer = -1

// slowdowns is the value of --slow.
type slowdowns []slowdown

// UnmarshalText parses I:F[@S[-E]][,...], as in "0:4,2:1.5@100-200". I may be "random".
func (s *slowdowns) UnmarshalText(text []byte) error {
	var all slowdowns
	for _, part := range strings.Split(string(text), ",") {
		one, err := parseSlowdown(part)
		if err != nil {
			return fmt.Errorf("%q is not I:F[@S[-E]] or random:F: %w", part, err)
		}
		all = append(all, one)
	}
	*s = all
	return nil
}

// parseSlowdown parses I:F[@S[-E]].
func parseSlowdown(text string) (slowdown, error) {
	what, when, limited := strings.Cut(text, "@")
	index, factor, ok := strings.Cut(what, ":")
	if !ok {
		return slowdown{}, errors.New("no colon")
	}
	s := slowdown{first: 1, last: math.MaxInt64}
	var err error
	if index == "random" {
		s.index = randomPeer
	} else if s.index, err = strconv.Atoi(index); err != nil || s.index < 0 {
		return s, fmt.Errorf("peer %q: want an index of 0 or more, or random", index)
	}
	if s.factor, err = strconv.ParseFloat(factor, 64); err != nil || !(s.factor >= 1) || math.IsInf(s.factor, 0) {
		return s, fmt.Errorf("factor %q: want a number of at least 1", factor)
	}
	if !limited {
		return s, nil
	}
	first, last, ends := strings.Cut(when, "-")
	if s.first, err = strconv.ParseInt(first, 10, 64); err != nil || s.first < 1 {
		return s, fmt.Errorf("step %q: want a number of at least 1", first)
	}
	if !ends {
		return s, nil
	}
	if s.last, err = strconv.ParseInt(last, 10, 64); err != nil || s.last < s.first {
		return s, fmt.Errorf("step %q: want a number of at least %d", last, s.first)
	}
	return s, nil
}

// String is the inverse of parseSlowdown.
func (s slowdown) String() string {
	index := "random"
	if s.index != randomPeer {
		index = fmt.Sprint(s.index)
	}
	text := fmt.Sprintf("%s:%v@%d", index, s.factor, s.first)
	if s.last < math.MaxInt64 {
		text += fmt.Sprintf("-%d", s.last)
	}
	return text
}

// factor returns the factor of a peer's time in a step: the product of all slowdowns that apply. index
// is one of the given number of local peers.
func (s slowdowns) factor(index, peers int, step int64) float64 {
	f := 1.0
	for _, one := range s {
		slow := one.index
		if slow == randomPeer {
			slow = rand.New(rand.NewPCG(uint64(step), 1)).IntN(peers)
		}
		if slow == index && one.first <= step && step <= one.last {
			f *= one.factor
		}
	}
	return f
}
