package ring

import (
	"context"
	"fmt"
	"sync"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/internal/kernel"
)

// wire is one direction between two neighbours, in memory. Without buffers, a Send returns only
// when its message has been received. A Link need not buffer more. With buffers, a Send returns at
// once while a buffer is free.
type wire struct {
	depth    int // number of buffers
	messages chan []byte
	taken    chan struct{} // for depth 0: signals that the receiver has copied the message
}

// newWire returns a wire with the given number of buffers.
func newWire(depth int) *wire {
	return &wire{depth: depth, messages: make(chan []byte, depth), taken: make(chan struct{})}
}

// send is Link.Send of the rank at the start of the wire.
func (w *wire) send(ctx context.Context, buf []byte) error {
	message := buf
	if w.depth > 0 {
		message = append([]byte(nil), buf...)
	}
	select {
	case w.messages <- message:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if w.depth == 0 {
		<-w.taken // ctx does not matter, because the receiver copies without waiting
	}
	return nil
}

// recv is Link.Recv of the rank at the end of the wire. A message of another length is an error.
func (w *wire) recv(ctx context.Context, buf []byte) error {
	select {
	case message := <-w.messages:
		n := copy(buf, message)
		if w.depth == 0 {
			w.taken <- struct{}{}
		}
		if n != len(message) || n != len(buf) {
			return fmt.Errorf("message of %d bytes, want %d", len(message), len(buf))
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// memory is the Link of one rank over two wires.
type memory struct{ left, right *wire }

func (m memory) Send(ctx context.Context, buf []byte) error { return m.right.send(ctx, buf) }
func (m memory) Recv(ctx context.Context, buf []byte) error { return m.left.recv(ctx, buf) }

// newRings returns the Ring of each rank, connected in memory.
func newRings(size, depth, segment int) []Ring {
	wires := make([]*wire, size) // wires[i] ends at rank i
	for i := range wires {
		wires[i] = newWire(depth)
	}
	rings := make([]Ring, size)
	for i := range rings {
		link := memory{left: wires[i], right: wires[(i+1)%size]}
		rings[i] = Ring{Link: link, Rank: i, Size: size, Segment: segment}
	}
	return rings
}

// reorder puts the ranks into another order and connects the links accordingly.
func reorder(rings []Ring, order []int) {
	links := make([]Link, len(rings)) // by position in the ring
	for i := range rings {
		links[i] = rings[i].Link
	}
	for place, rank := range order {
		rings[rank].Link, rings[rank].Order = links[place], order
	}
}

// everyRank runs f at all ranks at once and returns the errors by rank. When a rank fails, everyRank interrupts the others, as a
// communicator does.
func everyRank(rings []Ring, f func(ctx context.Context, r Ring) error) []error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	errs := make([]error, len(rings))
	var ranks sync.WaitGroup
	for i, r := range rings {
		ranks.Go(func() {
			errs[i] = f(ctx, r)
			if errs[i] != nil {
				cancel(fmt.Errorf("rank %d failed: %w", i, errs[i]))
			}
		})
	}
	ranks.Wait()
	return errs
}

// mustEveryRank calls everyRank, and fails the test if a rank fails.
func mustEveryRank(t rapid.TB, rings []Ring, f func(ctx context.Context, r Ring) error) {
	t.Helper()
	for i, err := range everyRank(rings, f) {
		if err != nil {
			t.Fatalf("rank %d of %d: %v", i, len(rings), err)
		}
	}
}

// counter is a Link that counts sent messages and bytes. Only one goroutine may send at a time.
type counter struct {
	Link
	messages, bytes, longest int
}

func (c *counter) Send(ctx context.Context, buf []byte) error {
	c.messages++
	c.bytes += len(buf)
	c.longest = max(c.longest, len(buf))
	return c.Link.Send(ctx, buf)
}

// value returns element i of the vector of a rank. The elements all differ if T has enough values. Otherwise they repeat, and
// are so small that the sum over nine ranks is exact.
func value[T Number](rank, i int) T {
	x := rank*1009 + i + 1
	switch dtype.TypeOf[T]() {
	case dtype.F16:
		x %= 227
	case dtype.BF16, dtype.Int8, dtype.Uint8:
		x %= 28
	}
	return kernel.FromFloat64[T](float64(x))
}

// input returns the vector of a rank.
func input[T Number](rank, n int) []T {
	v := make([]T, n)
	for i := range v {
		v[i] = value[T](rank, i)
	}
	return v
}

// inputs returns the vectors of all ranks.
func inputs[T Number](size, n int) [][]T {
	all := make([][]T, size)
	for rank := range all {
		all[rank] = input[T](rank, n)
	}
	return all
}

// reduced is a slow reference for AllReduce: it reduces the vectors in the order of ranks.
// AllReduce has the same result if the reduction does not depend on the order.
func reduced[T Number](all [][]T, op Reduction[T]) []T {
	v := append([]T{}, all[0]...)
	for _, other := range all[1:] {
		op.Fold(v, v, other)
	}
	if op.Finish != nil {
		op.Finish(v, len(all))
	}
	return v
}
