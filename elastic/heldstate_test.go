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
	h.fresh, h.levels = true, true
	h.beginAnew()
	check("after a new beginning", 9, 10, true)
	if got, want := fmt.Sprint(told), "[4 5 6 9]"; got != want || h.fresh || h.levels {
		t.Errorf("steps %s, want %s", got, want)
	}
}
