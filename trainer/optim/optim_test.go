package optim_test

import (
	"math"
	"slices"
	"testing"

	"github.com/elrun/elrun/trainer/optim"
	"pgregory.net/rapid"
)

// twin is a reference implementation of an optimizer as in its paper, for one element, in float64.
type twin interface {
	step(t int, rate, param, grad float64) float64
}

type sgdTwin struct {
	o optim.SGD
	v float64
}

func (s *sgdTwin) step(_ int, rate, param, grad float64) float64 {
	g := grad + s.o.WeightDecay*param
	s.v = s.o.Momentum*s.v + g
	if s.o.Nesterov {
		return param - rate*(g+s.o.Momentum*s.v)
	}
	return param - rate*s.v
}

// adamTwin follows algorithm 1 of Adam and algorithm 2 of AdamW line by line.
type adamTwin struct {
	b1, b2, eps, l2, decoupled float64
	m, v                       float64
}

func (a *adamTwin) step(t int, rate, param, grad float64) float64 {
	g := grad + a.l2*param
	a.m = a.b1*a.m + (1-a.b1)*g
	a.v = a.b2*a.v + (1-a.b2)*g*g
	mHat := a.m / (1 - math.Pow(a.b1, float64(t)))
	vHat := a.v / (1 - math.Pow(a.b2, float64(t)))
	return param - rate*mHat/(math.Sqrt(vHat)+a.eps) - rate*a.decoupled*param
}

func TestRulesAgreeWithFloat64Twins(t *testing.T) {
	tests := map[string]struct {
		rule optim.Optimizer
		twin func() twin
	}{
		"sgd":      {optim.SGD{}, func() twin { return &sgdTwin{} }},
		"decay":    {optim.SGD{WeightDecay: 0.1}, func() twin { return &sgdTwin{o: optim.SGD{WeightDecay: 0.1}} }},
		"momentum": {optim.SGD{Momentum: 0.9}, func() twin { return &sgdTwin{o: optim.SGD{Momentum: 0.9}} }},
		"nesterov": {optim.SGD{Momentum: 0.8, Nesterov: true, WeightDecay: 0.01}, func() twin {
			return &sgdTwin{o: optim.SGD{Momentum: 0.8, Nesterov: true, WeightDecay: 0.01}}
		}},
		"adam":    {optim.Adam{}, func() twin { return &adamTwin{b1: 0.9, b2: 0.999, eps: 1e-8} }},
		"adam-l2": {optim.Adam{Beta1: 0.5, Beta2: 0.9, Epsilon: 1e-3, WeightDecay: 0.1}, func() twin { return &adamTwin{b1: 0.5, b2: 0.9, eps: 1e-3, l2: 0.1} }},
		"adamw":   {optim.AdamW{WeightDecay: 0.1}, func() twin { return &adamTwin{b1: 0.9, b2: 0.999, eps: 1e-8, decoupled: 0.1} }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if err := tt.rule.Check(); err != nil {
				t.Fatal(err)
			}
			rapid.Check(t, func(t *rapid.T) { compare(t, tt.rule, tt.twin) })
		})
	}
}

// compare runs rule, and a twin for each element, on the same random gradients. rule updates the vector in two parts, which must
// make no difference.
func compare(t *rapid.T, rule optim.Optimizer, newTwin func() twin) {
	const n = 5
	param, state, want := make([]float32, n), optim.NewState(rule, n), make([]float64, n)
	twins := make([]twin, n)
	for i := range twins {
		param[i], twins[i] = float32(rapid.Float64Range(-2, 2).Draw(t, "param")), newTwin()
		want[i] = float64(param[i])
	}
	cut := rapid.IntRange(0, n).Draw(t, "cut")
	for step := 1; step <= 20; step++ {
		rate, grad := rapid.Float64Range(1e-4, 0.1).Draw(t, "rate"), make([]float32, n)
		for i := range grad {
			grad[i] = float32(rapid.Float64Range(0.1, 3).Draw(t, "grad"))
			want[i] = twins[i].step(step, rate, want[i], float64(grad[i]))
		}
		head, tail := parts(state, cut)
		rule.Update(int64(step), rate, param[:cut], grad[:cut], head)
		rule.Update(int64(step), rate, param[cut:], grad[cut:], tail)
	}
	for i := range want {
		if diff := math.Abs(float64(param[i]) - want[i]); diff > 2e-4 {
			t.Fatalf("element %d is %v, twin %v, apart by %v", i, param[i], want[i], diff)
		}
	}
}

func parts(state [][]float32, cut int) (head, tail [][]float32) {
	for _, s := range state {
		head, tail = append(head, s[:cut]), append(tail, s[cut:])
	}
	return head, tail
}

// With a constant gradient g, the velocity of momentum is g(1-mu^t)/(1-mu).
func TestMomentumClosedForm(t *testing.T) {
	rule := optim.SGD{Momentum: 0.5}
	param, state := []float32{0}, optim.NewState(rule, 1)
	for step := int64(1); step <= 10; step++ {
		rule.Update(step, 1, param, []float32{2}, state)
		want := float32(2 * (1 - math.Pow(0.5, float64(step))) / 0.5)
		if state[0][0] != want {
			t.Fatalf("velocity after step %d is %v, want %v", step, state[0][0], want)
		}
	}
}

// Adam's first step is rate * sign(gradient), whatever the size of the gradient.
func TestAdamFirstStepIsTheRate(t *testing.T) {
	for _, g := range []float32{1e-3, 1, 1e3, -5} {
		param, state := []float32{0}, optim.NewState(optim.Adam{}, 1)
		optim.Adam{}.Update(1, 0.01, param, []float32{g}, state)
		want := -math.Copysign(0.01, float64(g))
		if math.Abs(float64(param[0])-want) > 1e-6 {
			t.Errorf("gradient %v moved by %v, want %v", g, param[0], want)
		}
	}
}

// Every optimizer minimises a quadratic function.
func TestRulesDescend(t *testing.T) {
	rules := []optim.Optimizer{optim.SGD{}, optim.SGD{Momentum: 0.9}, optim.SGD{Momentum: 0.9, Nesterov: true}, optim.Adam{}, optim.AdamW{}}
	for _, rule := range rules {
		param, grad, state := []float32{3, -2}, make([]float32, 2), optim.NewState(rule, 2)
		for step := int64(1); step <= 500; step++ {
			grad[0], grad[1] = param[0]-1, 4*(param[1]-1)
			rule.Update(step, 0.05, param, grad, state)
		}
		if math.Abs(float64(param[0]-1)) > 0.01 || math.Abs(float64(param[1]-1)) > 0.01 {
			t.Errorf("%T%+v ended at %v, want [1 1]", rule, rule, param)
		}
	}
}

func TestCheckNamesTheSetting(t *testing.T) {
	bad := map[string]optim.Optimizer{
		"optim: momentum is 1, want 0 or more and less than 1":                 optim.SGD{Momentum: 1},
		"optim: Nesterov is set without a momentum: set Momentum, such as 0.9": optim.SGD{Nesterov: true},
		"optim: weight decay is -1, want a finite number of 0 or more":         optim.SGD{WeightDecay: -1},
		"optim: beta1 is -0.1, want 0 or more and less than 1":                 optim.Adam{Beta1: -0.1},
		"optim: beta2 is NaN, want 0 or more and less than 1":                  optim.AdamW{Beta2: math.NaN()},
		"optim: epsilon is -1, want a finite number of 0 or more":              optim.Adam{Epsilon: -1},
		"optim: weight decay is +Inf, want a finite number of 0 or more":       optim.AdamW{WeightDecay: math.Inf(1)},
		"optim: weight decay is -0.5, want a finite number of 0 or more":       optim.Adam{WeightDecay: -0.5},
		"optim: momentum is -0.5, want 0 or more and less than 1":              optim.SGD{Momentum: -0.5},
		"optim: beta1 is 1.5, want 0 or more and less than 1":                  optim.AdamW{Beta1: 1.5},
	}
	for want, rule := range bad {
		if err := rule.Check(); err == nil || err.Error() != want {
			t.Errorf("%T%+v: error %v, want %q", rule, rule, err, want)
		}
	}
}

func TestUpdatePanicsOnLengths(t *testing.T) {
	bad := map[string]func(){
		"grad":  func() { optim.SGD{}.Update(1, 1, make([]float32, 2), make([]float32, 3), nil) },
		"state": func() { optim.Adam{}.Update(1, 1, make([]float32, 2), make([]float32, 2), nil) },
		"slot": func() {
			optim.SGD{Momentum: 0.9}.Update(1, 1, make([]float32, 2), make([]float32, 2), [][]float32{{1}})
		},
	}
	for name, f := range bad {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestClip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOf(rapid.Float32Range(-100, 100)).Draw(t, "a")
		b := rapid.SliceOf(rapid.Float32Range(-100, 100)).Draw(t, "b")
		limit := rapid.Float64Range(0.1, 200).Draw(t, "limit")
		was := slices.Concat(a, b)
		sum := 0.0
		for _, x := range was {
			sum += float64(x) * float64(x)
		}
		norm := optim.Clip([][]float32{a, b}, limit)
		if math.Abs(norm-math.Sqrt(sum)) > 1e-9*(1+norm) {
			t.Fatalf("norm %v, summed simply %v", norm, math.Sqrt(sum))
		}
		factor := min(1, limit/norm)
		for i, x := range slices.Concat(a, b) {
			if want := float64(was[i]) * factor; math.Abs(float64(x)-want) > 1e-5*(1+math.Abs(want)) {
				t.Fatalf("element %d is %v, want %v", i, x, want)
			}
		}
	})
}

func TestClipLeavesWhatIsNotFinite(t *testing.T) {
	inf := float32(math.Inf(1))
	v := []float32{1, inf}
	if norm := optim.Clip([][]float32{v}, 1); !math.IsInf(norm, 1) || v[0] != 1 {
		t.Errorf("norm %v, vector %v; want +Inf and no change", norm, v)
	}
	v = []float32{1, float32(math.NaN())}
	if norm := optim.Clip([][]float32{v}, 1); !math.IsNaN(norm) || v[0] != 1 {
		t.Errorf("norm %v, vector %v; want NaN and no change", norm, v)
	}
	defer func() {
		if recover() == nil {
			t.Error("limit 0 did not panic")
		}
	}()
	optim.Clip(nil, 0)
}
