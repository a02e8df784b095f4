package launch_test

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
)

// A complete program in one process, as in a test: three peers, a service that they call, and a
// task.
func ExampleServe() {
	p := launch.NewProgram("sum")
	numbers := make(chan int, 3)
	put := launch.Serve(p, "queue/put", func(_ context.Context, n int) (int, error) {
		numbers <- n
		return len(numbers), nil
	}, launch.Restart(10, time.Second), launch.Group("side"))
	take := launch.Serve(p, "queue/take", func(context.Context, struct{}) (int, error) { return <-numbers, nil })
	p.Peers("train", 3, func(ctx context.Context, g *elastic.Group) error {
		s, err := g.Sessions().Next(ctx, 0)
		if err != nil {
			return err
		}
		if _, err = put.Call(ctx, s.Rank); err != nil {
			return err
		}
		return g.Report(elastic.Result{})
	})
	p.Task("add", func(ctx context.Context) error {
		sum := 0
		for range 3 {
			n, err := take.Call(ctx, struct{}{})
			if err != nil {
				return err
			}
			sum += n
		}
		fmt.Println("sum", sum)
		return nil
	}, launch.Group("side"))
	if _, err := p.Run(context.Background(), launch.Goroutines()); err != nil {
		fmt.Println(err)
	}
	// Output: sum 3
}

// A program that runs as processes on this host, or under elrun, which may use several hosts. The
// log service takes calls until the nodes that write to it have stopped.
func ExampleProcesses() {
	p := launch.NewProgram("train")
	write := func(_ context.Context, line string) (int, error) { return fmt.Println(line) }
	log := launch.Serve(p, "log", write, launch.StopAfter("clock"))
	launch.Serve(p, "clock", func(ctx context.Context, _ struct{}) (time.Time, error) {
		_, err := log.Call(ctx, "somebody has asked for the time")
		return time.Now(), err
	})
	p.Peers("train", 4, func(ctx context.Context, g *elastic.Group) error {
		_, err := log.Call(ctx, "hello")
		return err
	})
	result, err := p.Run(context.Background(), launch.Processes(launch.Options{}))
	if err != nil {
		fmt.Println(err)
	}
	os.Exit(result.Status)
}
