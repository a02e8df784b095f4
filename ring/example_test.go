package ring_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/elrun/elrun/ring"
)

// channels is a Link between goroutines of one process.
type channels struct {
	left  <-chan []byte
	right chan<- []byte
}

func (c channels) Send(ctx context.Context, buf []byte) error {
	select {
	case c.right <- append([]byte(nil), buf...):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c channels) Recv(ctx context.Context, buf []byte) error {
	select {
	case message := <-c.left:
		copy(buf, message)
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Three ranks, each a goroutine, add up their vectors.
func ExampleAllReduce() {
	const size = 3
	to := [size]chan []byte{make(chan []byte), make(chan []byte), make(chan []byte)}
	results := make([][]float32, size)
	errs := make([]error, size)
	var ranks sync.WaitGroup
	for rank := range size {
		ranks.Go(func() {
			link := channels{left: to[rank], right: to[(rank+1)%size]}
			r := ring.Ring{Link: link, Rank: rank, Size: size, Segment: 256 << 10}
			src := []float32{float32(rank), 10, 0.5, -1}
			results[rank] = make([]float32, len(src))
			errs[rank] = ring.AllReduce(context.Background(), r, results[rank], src, ring.Sum[float32]())
		})
	}
	ranks.Wait()
	for rank := range size {
		fmt.Println(rank, results[rank], errs[rank])
	}
	// Output:
	// 0 [3 30 1.5 -3] <nil>
	// 1 [3 30 1.5 -3] <nil>
	// 2 [3 30 1.5 -3] <nil>
}
