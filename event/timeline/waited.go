package timeline

import (
	"encoding/json"
	"fmt"
	"time"
)

// Waited is for how long the other peers have waited for one, in peer-time, by the reason.
type Waited struct {
	Computing time.Duration // it computed longer than they did
	Call      time.Duration // it held up a call, or was not in it, for unusually long
	Absent    time.Duration // it was lost, and they needed a view without it
}

// Total returns the sum.
func (w Waited) Total() time.Duration { return plus(plus(w.Computing, w.Call), w.Absent) }

// plus returns the sum of both.
func (w Waited) plus(o Waited) Waited {
	return Waited{plus(w.Computing, o.Computing), plus(w.Call, o.Call), plus(w.Absent, o.Absent)}
}

// waitedJSON is the JSON form of Waited.
type waitedJSON struct {
	ComputingMS float64 `json:"computing_ms,omitempty"`
	CallMS      float64 `json:"call_ms,omitempty"`
	AbsentMS    float64 `json:"absent_ms,omitempty"`
}

// MarshalJSON implements json.Marshaler.
func (w Waited) MarshalJSON() ([]byte, error) {
	return json.Marshal(waitedJSON{milliseconds(w.Computing), milliseconds(w.Call), milliseconds(w.Absent)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (w *Waited) UnmarshalJSON(b []byte) error {
	var in waitedJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return fmt.Errorf("timeline: unmarshal waits: %w", err)
	}
	*w = Waited{fromMS(in.ComputingMS), fromMS(in.CallMS), fromMS(in.AbsentMS)}
	return nil
}

// waitKind is why a peer waits for another.
type waitKind int

const (
	waitComputing waitKind = iota
	waitCall
	waitAbsent
)

// add adds time of one kind.
func (w *Waited) add(why waitKind, d time.Duration) {
	switch why {
	case waitComputing:
		w.Computing = plus(w.Computing, d)
	case waitCall:
		w.Call = plus(w.Call, d)
	case waitAbsent:
		w.Absent = plus(w.Absent, d)
	}
}

// charge is time that a peer has waited for others.
type charge struct {
	culprit string // short IDs, separated by commas
	why     waitKind
	time    time.Duration
}
