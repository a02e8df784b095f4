package elastic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// stepOnly is a Replayer that consists of the number of its step.
type stepOnly struct{ step int64 }

func (s *stepOnly) Step() int64              { return s.step }
func (s *stepOnly) Save(w io.Writer) error   { return binary.Write(w, binary.LittleEndian, s.step) }
func (s *stepOnly) Load(r io.Reader) error   { return binary.Read(r, binary.LittleEndian, &s.step) }
func (s *stepOnly) Update(w io.Writer) error { return s.Save(w) }
func (s *stepOnly) Apply(r io.Reader) error  { return s.Load(r) }
func (s *stepOnly) at(step int64) io.Reader  { return strings.NewReader(s.bytes(step)) }
func (s *stepOnly) bytes(step int64) string {
	return string(binary.LittleEndian.AppendUint64(nil, uint64(step)))
}

// wrapped is a state around another one.
type wrapped struct{ State }

func (w wrapped) Unwrap() State { return w.State }

// A state counts as unchanged from its first step with calls, until it has changed once. A copy and
// another loop begin the count again. Vectors are observed if they were given by value.
func TestChanges(t *testing.T) {
	step, w, m := int64(0), []float64{1}, []float64{2}
	var c changes
	check := func(when string, s State, want int64) {
		t.Helper()
		if got, err := c.none(s); err != nil || got != want {
			t.Errorf("%s: %d steps without a change, want %d; %v", when, got, want, err)
		}
	}
	s := Vectors(&step, w, &m)
	if err := c.begin(s); err != nil {
		t.Fatal(err)
	}
	check("at the beginning", s, 0)
	for n := int64(1); n <= 12; n++ {
		m[0]++
		if tell, err := c.count(s); err != nil || tell != (n == 10) {
			t.Errorf("step %d: told %v, %v", n, tell, err)
		}
		check("replaced", s, n)
	}
	c.again()
	check("after a copy", s, 0)
	if err := c.begin(s); err != nil {
		t.Fatal(err)
	}
	if _, err := c.count(s); err != nil {
		t.Fatal(err)
	}
	w[0]++
	check("changed in place", s, 0)
	w[0]--
	c.again()
	if tell, err := c.count(s); tell || err != nil {
		t.Errorf("told %v, %v", tell, err)
	}
	check("after a change", s, 0)
	if _, slices := observed(wrapped{Vectors(&step, w)}); !slices {
		t.Error("the vectors in a state with checkpoints are not observed")
	}
	if part, slices := observed(Vectors(&step, &w, &m)); slices || part == nil {
		t.Error("vectors by address count as vectors by value")
	}
}

// A member reports the step that it holds, and the updates that it can give.
func TestHeldState(t *testing.T) {
	var told []int64
	h := heldState{advanced: func(step int64) { told = append(told, step) }}
	if a, err := h.account(true); err != nil || a.holds || a.digest != 0 {
		t.Errorf("without a state: %+v, %v", a, err)
	}
	if h.resting() != nil {
		t.Error("without a state a newcomer can want no snapshot")
	}
	s := &stepOnly{step: 3}
	h.state, h.settings, h.updates = s, []Setting{{Name: "a"}}, -1
	h.donor = newDonor(s, 0)
	defer h.donor.Close()
	check := func(when string, step, updates int64, digest bool) {
		t.Helper()
		a, err := h.account(digest)
		if err != nil || !a.holds || a.step != step || a.updates != updates || (a.digest != 0) != digest || a.settings != settingsHash(h.settings) {
			t.Errorf("%s: %+v, %v", when, a, err)
		}
	}
	check("a state without an update", 3, 4, true)
	s.step = 4
	if err := h.commit(4); err != nil {
		t.Fatal(err)
	}
	check("after a commit", 4, 4, false)
	h.rest(true) // from now on the donor keeps updates
	if err := errors.Join(h.install(s.at(5), true), h.install(s.at(6), true)); err != nil {
		t.Fatal(err)
	}
	check("after two updates", 6, 5, false)
	if err := h.install(s.at(9), false); err != nil {
		t.Fatal(err)
	}
	check("after another state", 9, 10, false)
	if err := h.install(strings.NewReader("short"), false); err == nil || !h.void || !h.torn {
		t.Errorf("a state that ends early: error %v", err)
	}
	if a, err := h.account(true); err != nil || a.step != -1 || a.digest != 0 || h.resting() != nil {
		t.Errorf("a state that is void: %+v, %v", a, err)
	}
	h.fresh, h.synchronized = true, true
	h.beginAnew()
	check("after a new beginning", 9, 10, true)
	if got, want := fmt.Sprint(told), "[4 5 6 9]"; got != want || h.fresh || h.synchronized {
		t.Errorf("steps %s, want %s", got, want)
	}
}
