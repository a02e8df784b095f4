package collective

import (
	"testing"
	"time"
)

// A process that was stopped does not blame the others for the time it lost.
func TestExcuse(t *testing.T) {
	w := &world{started: time.Now().Add(-time.Minute), calls: make(map[*operation]struct{})}
	w.opts.OnStall = func(s Stall) { t.Errorf("blamed: %v", s) }
	o := &operation{Comm: &Comm{world: w, size: 1}, peer: -1}
	w.calls[o] = struct{}{}
	w.excuse(time.Since(w.started))
	w.look(o)
	blamed := false
	w.opts.OnStall = func(Stall) { blamed = true }
	o.progress.Store(0) // without the excuse
	if w.look(o); !blamed {
		t.Error("a wait of a minute was not reported")
	}
}
