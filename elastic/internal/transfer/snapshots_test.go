package transfer

import (
	"maps"
	"slices"
	"testing"
)

func TestSnapshots(t *testing.T) {
	l := newSnapshots(4, 1<<10)
	for step := int64(5); step <= 8; step++ {
		l.order(step)
	}
	same := l.by[5]
	l.order(5)
	if !l.full() || l.by[5] != same || l.wanted(5) != same || l.begun(5) || l.wanted(9) != nil || l.begun(9) {
		t.Error("an order of the same step is no other snapshot")
	}
	_, _ = same.data.Write(make([]byte, 3000))
	for step, p := range map[int64]phase{5: ready, 6: writing, 7: void} {
		l.by[step].phase = p
	}
	if l.wanted(5) != nil || !l.begun(6) || l.memory() != same.data.memory() {
		t.Errorf("%d bytes are kept", l.memory())
	}
	steps := func() []int64 { return slices.Sorted(maps.Keys(l.by)) }
	if next := l.trim(map[int64]bool{5: true, 7: true, 8: true}); next != 8 || !slices.Equal(steps(), []int64{5, 6, 8}) {
		t.Errorf("next %d, left %v", next, steps())
	}
	if l.miss(8) || !l.miss(9) || !slices.Equal(steps(), []int64{5, 6}) {
		t.Errorf("left %v", steps())
	}
	if next := l.trim(nil); next != never || !slices.Equal(steps(), []int64{6}) || l.full() {
		t.Errorf("next %d, left %v: a snapshot stays while it is written", next, steps())
	}
}
