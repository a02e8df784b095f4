package elastic

import (
	"slices"
	"testing"
	"time"
)

// Suspicions are withdrawn together: when no suspect is left, or at the end of a wait that begins
// with the first postponed suspicion.
func TestRegrouping(t *testing.T) {
	now := time.Unix(0, 0)
	some, none := func() bool { return true }, func() bool { return false }
	var r regrouping
	if got := r.due(now, none); got != nil {
		t.Errorf("of nobody: %v", got)
	}
	r.add("a", now)
	r.add("b", now.Add(regroup/2))
	if got := r.due(now.Add(regroup-1), some); got != nil {
		t.Errorf("before the end of the wait: %v", got)
	}
	if got := r.due(now.Add(regroup), some); !slices.Equal(got, []ID{"a", "b"}) {
		t.Errorf("at the end of the wait: %v", got)
	}
	r.add("c", now)
	if got := r.due(now, none); !slices.Equal(got, []ID{"c"}) {
		t.Errorf("when all are back: %v", got)
	}
	if got := r.due(now.Add(time.Hour), none); got != nil {
		t.Errorf("twice: %v", got)
	}
}
