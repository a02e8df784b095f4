package simnet_test

import (
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/elrun/elrun/internal/race"
	"github.com/elrun/elrun/testing/simnet"
)

// memory returns the bytes in use after a garbage collection, including the stacks of goroutines.
func memory() int64 {
	runtime.GC()
	runtime.GC() // the second collection empties the pools
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc + s.StackInuse)
}

// Many members fit into one process, because a pair of idle members uses little memory.
func TestFootprint(t *testing.T) {
	if race.Enabled {
		t.Skip("measures the heap, which the race detector does not change")
	}
	const members, pairs = 16, 16 * 15 / 2 // all of which are made at once
	inBubble(t, members, simnet.Config{}, func(t *testing.T, b *bench) {
		before := memory()
		ts := b.connect()
		synctest.Wait()
		if used := (memory() - before) / pairs; used > 96<<10 {
			t.Errorf("%d bytes for a pair, both sides together", used)
		} else {
			t.Logf("%d bytes for a pair, both sides together", used)
		}
		closeAll(t, ts)
	})
}
