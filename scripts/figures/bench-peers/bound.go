package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/elrun/elrun/ring"
)

// bound measures the time of the memory accesses of an AllReduce, and prints it in the format of
// the sides. The workers, as many as cores, each make two copies and one addition of a part of
// every vector. An out-of-place AllReduce of two ranks reads and writes about as many bytes: each
// rank sends one half, adds the other half, and copies the half that the other rank has added.
func bound(out io.Writer, workers, n int, list string) error {
	for item := range strings.SplitSeq(list, ",") {
		text, times, _ := strings.Cut(item, ":")
		bytes, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("bound: size %q: %w", text, err)
		}
		calls, err := strconv.Atoi(times)
		if err != nil || bytes < 4 || calls < 1 {
			return fmt.Errorf("bound: %q: want BYTES:CALLS", item)
		}
		took := newMemory(bytes/4, workers).measure(calls)
		if _, err := fmt.Fprintf(out, `{"n":%d,"bytes":%d,"us_p50":%.3f}`+"\n", n, bytes, took); err != nil {
			return err
		}
	}
	return nil
}

// memory has the vectors that the workers copy and add.
type memory struct {
	a, b, c, d []float32
	workers    int
}

func newMemory(n, workers int) *memory {
	m := &memory{make([]float32, n), make([]float32, n), make([]float32, n), make([]float32, n), max(1, min(workers, n))}
	for i := range n {
		m.a[i], m.b[i], m.c[i], m.d[i] = float32(i%7), float32(i%5), 1, 1 // writes to all vectors, so that the kernel allocates their pages
	}
	return m
}

// measure returns the median of the times of move, in microseconds.
func (m *memory) measure(calls int) float64 {
	took := make([]float64, calls)
	for i := range took {
		took[i] = float64(m.move()) / float64(time.Microsecond)
	}
	slices.Sort(took)
	return quantile(took, 0.5)
}

// move copies a to c and b to d, and then adds c to d. It returns the time.
func (m *memory) move() time.Duration {
	add := ring.Sum[float32]()
	var ready, done sync.WaitGroup
	begin := make(chan struct{})
	for w := range m.workers {
		ready.Add(1)
		done.Add(1)
		go func() {
			defer done.Done()
			from, to := len(m.a)*w/m.workers, len(m.a)*(w+1)/m.workers
			ready.Done()
			<-begin
			copy(m.c[from:to], m.a[from:to])
			copy(m.d[from:to], m.b[from:to])
			add.Fold(m.d[from:to], m.c[from:to], m.d[from:to])
		}()
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	done.Wait()
	return time.Since(start)
}
