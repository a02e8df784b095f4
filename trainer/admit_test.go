package trainer

import (
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/loadbal"
	"github.com/elrun/elrun/trainer/optim"
)

// policyOf returns the policy of a name.
func policyOf(name string) loadbal.Policy {
	p, err := loadbal.New(name)
	if err != nil {
		panic(err)
	}
	return p
}

// hasEqual reports whether the policy of a step model is "equal".
func hasEqual(o *stepModel) bool {
	return reflect.TypeOf(o.policy) == reflect.TypeOf(policyOf("equal"))
}

// drawStepModel draws a step model of 1 to 8 ranks.
func drawStepModel(t *rapid.T) *stepModel {
	o := &stepModel{
		policy:       policyOf(rapid.SampledFrom([]string{"auto", "equal"}).Draw(t, "policy")),
		microbatches: rapid.IntRange(1, 200).Draw(t, "microbatches"),
		bytes:        rapid.Int64Range(4, 1<<24).Draw(t, "bytes"),
	}
	part := func(name string) time.Duration {
		return time.Duration(rapid.IntRange(0, 50_000_000).Draw(t, name))
	}
	o.timing = stepTiming{fixed: part("fixed"), latency: part("latency"), flow: part("flow")}
	for range rapid.IntRange(1, 8).Draw(t, "ranks") {
		o.members = append(o.members, elastic.ID(rune('a'+len(o.members))))
		o.costs = append(o.costs, loadbal.Cost{Fixed: rapid.Int64Range(0, 20_000_000).Draw(t, "a"),
			Each: rapid.Int64Range(1, 20_000_000).Draw(t, "c"), Min: 1})
	}
	return o
}

// drawCandidates draws candidates of known speed.
func drawCandidates(t *rapid.T, most int) (all []elastic.Candidate) {
	for range rapid.IntRange(1, most).Draw(t, "candidates") {
		all = append(all, elastic.Candidate{Speed: rapid.Int64Range(1, 1<<22).Draw(t, "speed"),
			Fixed: time.Duration(rapid.IntRange(0, 20_000_000).Draw(t, "fixed")),
			Delay: time.Duration(rapid.IntRange(0, 5_000_000).Draw(t, "delay")), Bandwidth: rapid.Int64Range(1<<17, 1<<30).Draw(t, "bandwidth") * rapid.Int64Range(0, 1).Draw(t, "measured")})
	}
	return all
}

// twin predicts a step independently of predict: it assigns microbatches one by one, and evaluates
// the formula for communication in the form of the comment of stepModel.
func twin(o *stepModel, others []elastic.Candidate, near bool) forecast {
	costs := append([]loadbal.Cost(nil), o.costs...)
	for _, c := range others {
		costs = append(costs, loadbal.Cost{Fixed: int64(c.Fixed), Each: loadbal.Pace(c.Speed)})
	}
	shares := make([]int, len(costs))
	for left := o.microbatches; left > 0; left-- {
		best := -1
		for r, c := range costs {
			next := c.Time(shares[r] + 1)
			switch {
			case hasEqual(o):
				next = int64(shares[r])
			case shares[r] == 0 && o.microbatches >= len(costs):
				next = -1 // every rank gets at least one
			}
			if best < 0 || next < bestNext(o, costs, shares, best) {
				best = r
			}
		}
		shares[best]++
	}
	n, m := float64(len(o.costs)), float64(len(costs))
	rest := float64(o.timing.latency + o.timing.flow)
	if n > 1 {
		a := float64(o.timing.latency) / (2 * (n - 1))
		b := float64(o.timing.flow) / (2 * (n - 1) / n)
		latency, flow := 2*(m-1)*a, 2*(m-1)/m*b
		for _, c := range others {
			if !near {
				latency = max(latency, 4*float64(c.Delay))
				if c.Bandwidth > 0 {
					flow = max(flow, 2*(m-1)/m*float64(o.bytes)/float64(c.Bandwidth)*1e9)
				}
			}
		}
		rest = latency + flow
	}
	return forecast{time.Duration(loadbal.Slowest(costs, shares)), o.timing.fixed + time.Duration(rest)}
}

// bestNext returns the value by which twin compares ranks, for rank r: the time of rank r with one
// more microbatch, unless the policy or the minimum share decides.
func bestNext(o *stepModel, costs []loadbal.Cost, shares []int, r int) int64 {
	switch {
	case hasEqual(o):
		return int64(shares[r])
	case shares[r] == 0 && o.microbatches >= len(costs):
		return -1
	}
	return costs[r].Time(shares[r] + 1)
}

func TestPredictionIsThatOfItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, others, near := drawStepModel(t), drawCandidates(t, 3), rapid.Bool().Draw(t, "near")
		if len(o.costs) == 1 {
			near = true // TestFirstLink tests links that were not measured
		}
		got, want := o.predict(others, near), twin(o, others, near)
		// If two ranks have equal times, either of them may get the next microbatch.
		if off := got.rest - want.rest; off.Abs() > 10 || got.computing > want.computing {
			t.Fatalf("%+v, want %+v", got, want)
		}
	})
}

// An admitted candidate shortens the predicted step. A refused candidate would have shortened it by at most one percent.
func TestNoAdmissionRaisesThePrediction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o, near := drawStepModel(t), rapid.Bool().Draw(t, "near")
		coming := drawCandidates(t, 3)
		c := coming[0]
		a := elastic.Application{Candidate: c, Coming: coming[1:], Members: o.members, Near: near}
		before, after := o.predict(a.Coming, near).total(), o.predict(append(a.Coming[:len(a.Coming):len(a.Coming)], c), near).total()
		err := o.decide(a, 16)
		if err == nil && after >= before || err != nil && float64(after) < 0.99*float64(before) {
			t.Fatalf("%v with it, %v without: %v", after, before, err)
		}
	})
}

// A candidate may report any numbers. The prediction stays within bounds, and the decision does not panic.
func TestCandidatesMaySayAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := drawStepModel(t)
		any := rapid.Int64()
		var all []elastic.Candidate
		for range 3 {
			all = append(all, elastic.Candidate{Speed: any.Draw(t, "speed"), Fixed: time.Duration(any.Draw(t, "fixed")),
				Most: int(any.Draw(t, "most")), Bandwidth: any.Draw(t, "bandwidth"), Delay: time.Duration(any.Draw(t, "delay"))})
		}
		f := o.predict(all, false)
		if f.computing < 0 || f.rest < 0 || f.total() > 24*time.Hour {
			t.Fatalf("a step of %+v", f)
		}
		_ = o.decide(elastic.Application{Candidate: all[0], Coming: all[1:]}, 16)
	})
}

// four returns the step model of four equal ranks that compute 100 microbatches per second each.
func four(p stepTiming) *stepModel {
	o := &stepModel{members: []elastic.ID{"a", "b", "c", "d"}, policy: policyOf("auto"), microbatches: 512, bytes: 1 << 20, timing: p}
	for range o.members {
		o.costs = append(o.costs, loadbal.Cost{Each: 10_000_000, Min: 1})
	}
	return o
}

func TestDecide(t *testing.T) {
	const ms = time.Millisecond
	slow := elastic.Candidate{Speed: 10 * loadbal.SpeedUnit}
	fast := elastic.Candidate{Speed: 100 * loadbal.SpeedUnit}
	far := func(c elastic.Candidate, delay time.Duration, bandwidth int64) elastic.Candidate {
		c.Delay, c.Bandwidth = delay, bandwidth
		return c
	}
	for name, c := range map[string]struct {
		timing stepTiming
		c      elastic.Candidate
		near   bool
		want   string // part of the reason; empty if the candidate is admitted
	}{
		"ten times slower, computing counts":  {stepTiming{fixed: ms, latency: 2 * ms}, slow, false, ""},
		"ten times slower, messages count":    {stepTiming{latency: 300 * ms}, slow, false, "1650.0 ms with the newcomer and takes 1580.0 ms without (computing 1250.0 ms and 1280.0 ms); samples/s: the newcomer 80, the 4 members 3200"},
		"as fast, messages count":             {stepTiming{latency: 300 * ms}, fast, false, ""},
		"as fast, messages count for all":     {stepTiming{latency: 900 * ms}, fast, false, "with the newcomer"},
		"as fast, gradients count":            {stepTiming{flow: 900 * ms}, fast, false, ""},
		"slower, gradients count":             {stepTiming{flow: 900 * ms}, slow, false, "with the newcomer"},
		"as fast, behind a slow link":         {stepTiming{flow: ms}, far(fast, 0, 4<<20), false, "with the newcomer"},
		"that link, on the same host":         {stepTiming{flow: ms}, far(fast, 0, 4<<20), true, ""},
		"as fast, far away":                   {stepTiming{latency: ms}, far(fast, 80*ms, 0), false, "with the newcomer"},
		"a fixed part longer than the step":   {stepTiming{}, elastic.Candidate{Speed: 1 << 30, Fixed: 2 * time.Second}, true, "with the newcomer"},
		"nothing is known of it":              {stepTiming{latency: time.Hour}, elastic.Candidate{}, false, ""},
		"slower by far than anything counts":  {stepTiming{}, elastic.Candidate{Speed: 1}, true, "with the newcomer"},
		"steps are shorter than they seem":    {stepTiming{slowest: 1240 * ms}, slow, true, "1250.0 ms with the newcomer and takes 1240.0 ms"},
		"memory for next to nothing, if fast": {stepTiming{}, elastic.Candidate{Speed: 1 << 40, Most: 1}, true, "with the newcomer"},
	} {
		err := four(c.timing).decide(elastic.Application{Candidate: c.c, Near: c.near}, 8)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// A single peer has measured no communication. The prediction then uses the candidate's measurements.
func TestFirstLink(t *testing.T) {
	o := four(stepTiming{fixed: time.Millisecond})
	o.costs, o.members = o.costs[:1], o.members[:1]
	c := elastic.Candidate{Delay: 3 * time.Millisecond, Bandwidth: 1 << 20}
	if got := o.predict([]elastic.Candidate{c}, false); got.rest != time.Millisecond+12*time.Millisecond+time.Second || got.computing != 2560*time.Millisecond {
		t.Errorf("%+v", got)
	}
}

func TestAmongThoseThatAreLeft(t *testing.T) {
	o := four(stepTiming{fixed: 1e6, latency: 6e6, flow: 12e6})
	o.costs[1].Each = 7
	o.timing.slowest = 7
	left := o.restrict([]elastic.ID{"b", "d"})
	if want := (stepTiming{fixed: 1e6, latency: 2e6, flow: 8e6}); len(left.costs) != 2 || left.costs[0].Each != 7 || left.timing != want {
		t.Errorf("%+v", left)
	}
	if o.restrict(o.members) != o || len(o.costs) != 4 {
		t.Error("all are left")
	}
}

func TestAdmit(t *testing.T) {
	var last atomic.Pointer[stepModel]
	j := admitter{microbatch: 5, model: &last}
	slow := elastic.Application{Candidate: elastic.Candidate{Speed: 1}, Members: []elastic.ID{"a", "b", "c", "d"}}
	if err := j.Admit(slow); !errors.Is(err, elastic.ErrNotYet) {
		t.Errorf("before any step: %v", err)
	}
	last.Store(four(stepTiming{}))
	if err := j.Admit(slow); err == nil || errors.Is(err, elastic.ErrNotYet) {
		t.Errorf("a slow one: %v", err)
	}
	slow.Forced = true
	if err := j.Admit(slow); err != nil {
		t.Errorf("forced: %v", err)
	}
	slow.Forced, slow.Members = false, append(slow.Members, "e")
	if err := j.Admit(slow); !errors.Is(err, elastic.ErrNotYet) {
		t.Errorf("somebody has just come: %v", err)
	}
	j.always = true
	if err := j.Admit(slow); err != nil {
		t.Errorf("always: %v", err)
	}
	if _, err := newJob(nil, ModelOf(ramp{paramsOf(2)}), Config{Samples: 1, GlobalBatch: 1, Steps: 1, Optimizer: optim.SGD{},
		Schedule: optim.Constant(1), Balancing: Balancing{Admit: "sometimes"}}); !errors.Is(err, errAdmit) {
		t.Errorf("Admit sometimes: %v", err)
	}
}
