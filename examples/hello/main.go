// Hello is the smallest program for elrun: it joins the job, sums the ranks over all peers, and
// ends.
//
//	elrun -n 8 bin/hello
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/launch"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := hello(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
}

// hello sums the ranks over all peers. The barrier prevents a peer from leaving before the other
// peers have their sums.
func hello(ctx context.Context) (err error) {
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	s, err := g.Sessions().Next(ctx, 0)
	if err != nil {
		return err
	}
	sum := []int64{int64(s.Rank)}
	if err := collective.AllReduce(ctx, s.Comm, sum, sum, collective.Sum[int64]); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d: the ranks add up to %d\n", s.Rank, s.Comm.Size(), sum[0])
	return collective.Barrier(ctx, s.Comm)
}
