package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// slowdown multiplies the computing time of one local peer during a range of steps.
type slowdown struct {
	index       int     // elrun's index of the local peer
	factor      float64 // factor of the time, 1 or more
	first, last int64   // first and last step, inclusive
}

// slowdowns is the value of --slow.
type slowdowns []slowdown

// UnmarshalText parses I:F[@S[-E]][,...], as in "0:4,2:1.5@100-200".
func (s *slowdowns) UnmarshalText(text []byte) error {
	var all slowdowns
	for _, part := range strings.Split(string(text), ",") {
		one, err := parseSlowdown(part)
		if err != nil {
			return fmt.Errorf("%q is not I:F[@S[-E]]: %w", part, err)
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
	if s.index, err = strconv.Atoi(index); err != nil || s.index < 0 {
		return s, fmt.Errorf("peer %q: want an index of 0 or more", index)
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
	text := fmt.Sprintf("%d:%v@%d", s.index, s.factor, s.first)
	if s.last < math.MaxInt64 {
		text += fmt.Sprintf("-%d", s.last)
	}
	return text
}

// factor returns the factor of a peer's time in a step: the product of all slowdowns that apply.
func (s slowdowns) factor(index int, step int64) float64 {
	f := 1.0
	for _, one := range s {
		if one.index == index && one.first <= step && step <= one.last {
			f *= one.factor
		}
	}
	return f
}
