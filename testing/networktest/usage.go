package networktest

import (
	"fmt"
	"os"
	"runtime"
)

// usage has the resources that this process uses.
type usage struct {
	goroutines, files int
	heap              int64
}

// used returns the resources in use, without garbage.
func used() usage {
	runtime.GC()
	runtime.GC() // frees objects that finalizers and pools have released
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := usage{goroutines: runtime.NumGoroutine(), heap: int64(m.HeapAlloc)}
	if files, err := os.ReadDir("/proc/self/fd"); err == nil {
		u.files = len(files)
	}
	return u
}

// These are limits for the resources that a view may leave behind. viewHeap is in bytes for each
// view, and slackHeap is in bytes in all. For goroutines and descriptors function grown allows half
// of the number of views plus ten, because the goroutines and connections of the last views may
// still be ending.
const (
	viewHeap  = 16 << 10
	slackHeap = 8 << 20
)

// grown returns an error if the resources in now exceed u by more than the limits for this number
// of views.
func (u usage) grown(now usage, views int) error {
	if n := now.goroutines - u.goroutines; n > views/2+10 {
		return fmt.Errorf("%d goroutines more after %d views", n, views)
	}
	if n := now.files - u.files; n > views/2+10 {
		return fmt.Errorf("%d descriptors more after %d views", n, views)
	}
	if n := now.heap - u.heap; n > int64(views)*viewHeap+slackHeap {
		return fmt.Errorf("%d bytes more after %d views", n, views)
	}
	return nil
}
