//go:build !linux

package shm

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Where there is no futex a segment works between goroutines only. Sleeps are short
// instead of being ended.
func sleep(_ *atomic.Uint32, _ uint32, d time.Duration) { time.Sleep(d / 50) }

func wake(*atomic.Uint32) {}

func yield() { runtime.Gosched() }
