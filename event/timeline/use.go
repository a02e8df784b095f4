package timeline

import (
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// Use is what a peer spends its time on.
type Use int

// The uses. Each peer-second is in exactly one of them; docs/goodput.md defines them for users.
const (
	Useful      Use = iota // computing that counts
	Data                   // waits for samples
	Wait                   // waits for peers that still compute
	Communicate            // sums and commit records, as far as computing does not hide them
	Apply                  // the update of the parameters
	Recompute              // microbatches computed again, and attempts at a step that failed
	Change                 // from the last step before a change of the view to the first call after it
	CatchUp                // a newcomer's copy of the state, and the steps that were committed meanwhile
	Stalled                // waits that were reported as unusually long, and waits for a quorum
	Evaluate               // evaluations, as far as they delay a step
	Checkpoint             // checkpoints, as far as they delay a step
	Start                  // from the start of a process to its first step
	Other                  // all else, such as work of the program between two steps
)

// uses is the number of uses.
const uses = int(Other) + 1

// String returns the name that JSON has for a use, as in "catch_up".
func (u Use) String() string {
	names := [uses]string{"useful", "data", "wait", "communicate", "apply", "recompute", "change", "catch_up", "stalled",
		"evaluate", "checkpoint", "start", "other"}
	if u < 0 || int(u) >= uses {
		return fmt.Sprintf("Use(%d)", int(u))
	}
	return names[u]
}

// Uses has a time for each use. Its JSON form is an object of milliseconds without the zeros, as in
// {"useful":120.5,"wait":3}.
type Uses [uses]time.Duration

// Total returns the sum over all uses.
func (u Uses) Total() (sum time.Duration) {
	for _, d := range u {
		sum = plus(sum, d)
	}
	return sum
}

// plus adds durations that are not negative. Too large a sum, which only a garbled log has, is the largest
// duration.
func plus(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Goodput returns the useful part of the total; 0 if the total is 0.
func (u Uses) Goodput() float64 {
	if total := u.Total(); total > 0 {
		return float64(u[Useful]) / float64(total)
	}
	return 0
}

// MarshalJSON implements json.Marshaler.
func (u Uses) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, d := range u {
		if d == 0 {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		x, err := json.Marshal(milliseconds(d))
		if err != nil {
			return nil, err
		}
		b = append(append(append(append(b, '"'), Use(i).String()...), `":`...), x...)
	}
	return append(b, '}'), nil
}

// UnmarshalJSON implements json.Unmarshaler. It ignores uses that this version does not know.
func (u *Uses) UnmarshalJSON(b []byte) error {
	var named map[string]float64
	if err := json.Unmarshal(b, &named); err != nil {
		return fmt.Errorf("timeline: unmarshal uses: %w", err)
	}
	for i := range u {
		u[i] = fromMS(named[Use(i).String()])
	}
	return nil
}

// add adds other to u.
func (u *Uses) add(other Uses) {
	for i, d := range other {
		u[i] = plus(u[i], d)
	}
}

// fit changes u so that its sum is total. Parts that are too long are scaled down in proportion; what is
// missing becomes Other.
func (u *Uses) fit(total time.Duration) {
	sum := u.Total()
	if sum <= total {
		u[Other] += total - sum
		return
	}
	factor, rest := float64(total)/float64(sum), total
	for i, d := range u {
		u[i] = min(time.Duration(float64(d)*factor), rest)
		rest -= u[i]
	}
	u[Other] += rest // of rounding
}

// grow scales u up to the sum total in proportion.
func (u *Uses) grow(total time.Duration) {
	if sum := u.Total(); sum > 0 && sum < total {
		factor := float64(total) / float64(sum)
		for i, d := range u {
			u[i] = time.Duration(float64(d) * factor)
		}
	}
	u.fit(total)
}

// move moves at most most from one use to another, and returns what it has moved.
func (u *Uses) move(from, to Use, most time.Duration) time.Duration {
	d := max(0, min(most, u[from]))
	u[from] -= d
	u[to] += d
	return d
}

// maxMS bounds a duration in an event. A longer one is a mistake of the log.
const maxMS = 1e9

// duration converts milliseconds of an event. Negative values and NaN become 0.
func duration(ms float64) time.Duration {
	if !(ms > 0) {
		return 0
	}
	return time.Duration(math.Round(min(ms, maxMS) * 1e6))
}

// milliseconds converts a duration to the unit of times in the event log.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// fromMS is the inverse of milliseconds.
func fromMS(ms float64) time.Duration { return time.Duration(math.Round(ms * 1e6)) }

// finite returns x, or 0 if JSON cannot have x.
func finite(x float64) float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return 0
	}
	return x
}
