package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/elrun/elrun/trainer"
	"github.com/elrun/elrun/trainer/local"
	"github.com/elrun/elrun/trainer/optim"
)

// outer is the value of --outer: the optimizer that applies a round of local steps.
type outer struct{ rate, momentum float64 }

// UnmarshalText parses RATE,MOMENTUM, as in "0.7,0.9".
func (o *outer) UnmarshalText(text []byte) error {
	rate, momentum, ok := strings.Cut(string(text), ",")
	if !ok {
		return fmt.Errorf("%q is not RATE,MOMENTUM, as in 0.7,0.9", text)
	}
	var err error
	if o.rate, err = strconv.ParseFloat(rate, 64); err != nil || !(o.rate > 0 && o.rate <= 10) {
		return fmt.Errorf("rate %q: want a number above 0 and at most 10", rate)
	}
	if o.momentum, err = strconv.ParseFloat(momentum, 64); err != nil || !(o.momentum >= 0 && o.momentum < 1) {
		return fmt.Errorf("momentum %q: want a number that is at least 0 and below 1", momentum)
	}
	return nil
}

// String is the inverse of UnmarshalText.
func (o outer) String() string { return fmt.Sprintf("%v,%v", o.rate, o.momentum) }

// outer returns the effective value of --outer; the default is taken from DiLoCo (arXiv
// 2311.08105).
func (o options) outer() outer {
	if o.Outer == nil {
		return outer{rate: 0.7, momentum: 0.9}
	}
	return *o.Outer
}

// wrap converts a model and a configuration to local steps, if these are requested.
func (o options) wrap(m trainer.Model, cfg trainer.Config) (trainer.Model, trainer.Config, error) {
	if o.Local == 0 {
		return m, cfg, nil
	}
	u := o.outer()
	return local.Wrap(m, cfg, local.Config{
		Steps: o.Local,
		Outer: optim.SGD{Momentum: u.momentum, Nesterov: u.momentum > 0},
		Rate:  optim.Constant(u.rate),
		Delay: o.Delay, BySpeed: o.BySpeed,
	})
}
