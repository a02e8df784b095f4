package collective

import (
	"slices"
	"testing"
)

// Zero options leave a communicator unchanged, earlier options stay when more are added,
// and the communicator on which With is called never changes.
func TestWith(t *testing.T) {
	base := Comm{endpoint: &endpoint{opts: Options{Segment: 1 << 20, Cost: Cost{Beta: 1e-6}}}, group: group{size: 3}}
	steps := []CallOptions{
		{Algorithm: Ring}, {For: "x"}, {Priority: -2}, {Interruptible: true}, {Order: []int{0, 2, 1}}, {},
	}
	c := &base
	for _, o := range steps {
		was := *c
		d := c.With(o)
		if c.algorithm != was.algorithm || c.purpose != was.purpose || c.priority != was.priority || c.segment != was.segment || !slices.Equal(c.order.ranks, was.order.ranks) {
			t.Errorf("With(%+v) changed what it was called on", o)
		}
		c = d
	}
	all := base.With(CallOptions{Ring, "x", -2, true, []int{0, 2, 1}})
	for name, d := range map[string]*Comm{"one by one": c, "together": all} {
		if d.algorithm != Ring || d.purpose != "x" || d.priority != -2 || d.segment == 0 || !slices.Equal(d.order.ranks, []int{0, 2, 1}) {
			t.Errorf("%s: %v %q %d %d %v", name, d.algorithm, d.purpose, d.priority, d.segment, d.order)
		}
	}
	if n := testing.AllocsPerRun(10, func() { c = base.With(CallOptions{Algorithm: Tree, For: "y", Priority: 1, Interruptible: true}) }); n > 1 {
		t.Errorf("%v allocations, want one for the communicator", n)
	}
}

// A part of a group keeps the options of the whole group except the algorithm, and the relative
// order of its ranks in the ring.
func TestOptionsWithin(t *testing.T) {
	whole, part := newGroup([]int{4, 5, 6, 7}, 4), newGroup([]int{4, 6, 7}, 4)
	o := callOptions{algorithm: TwoLevel, purpose: "x", priority: 3, segment: 800, order: newRingOrder([]int{0, 3, 1, 2}, 4)}
	got := o.within(&whole, &part)
	if got.algorithm != Auto || got.purpose != "x" || got.priority != 3 || got.segment != 800 || !slices.Equal(got.order.ranks, []int{0, 2, 1}) {
		t.Errorf("got %+v", got)
	}
	if o.order = (ringOrder{}); o.within(&whole, &part).order.ranks != nil {
		t.Error("an order of the part without one of the whole")
	}
}
