package transfer_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic/internal/transfer"
)

// direct is a Source without a network: it calls donors in this process.
type direct map[string]*transfer.Donor

func (d direct) Request(ctx context.Context, donor string, request []byte) (io.ReadCloser, error) {
	r, w := io.Pipe()
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(ctx, func() { r.CloseWithError(ctx.Err()) }) // the end of the pipe unblocks reader and writer
	go func() { w.CloseWithError(d[donor].Serve(ctx, request, w)) }()
	return stream{r, cancel}, nil
}

type stream struct {
	io.Reader
	cancel context.CancelFunc
}

func (s stream) Close() error { s.cancel(); return nil }

// A job of two members adds up the numbers of its steps, and a third peer joins.
func Example() {
	donors := direct{"ann": transfer.NewDonor(0, transfer.Config{Replays: true}), "bob": transfer.NewDonor(0, transfer.Config{Replays: true})}
	over := make(chan struct{})
	var job sync.WaitGroup
	job.Go(func() {
		sum := int64(0)
		steps := time.NewTicker(time.Millisecond)
		defer steps.Stop()
		for step := int64(1); ; step++ {
			select {
			case <-over:
				return
			case <-steps.C:
			}
			sum += step
			for _, d := range donors {
				err := member(d, step, sum)
				if err != nil {
					fmt.Println(err)
				}
			}
		}
	})

	ctx, letIn := context.WithCancel(context.Background())
	defer letIn()
	o := transfer.Options{Self: "joiner", Donors: func() []string { return []string{"ann", "bob"} }}
	snap, err := transfer.Fetch(ctx, donors, o)
	if err != nil {
		fmt.Println(err)
		return
	}
	var state int64
	fmt.Fscan(snap.Reader(), &state)
	err = transfer.Follow(ctx, donors, o, transfer.Following{
		After: snap.Step,
		Apply: func(step int64, update []byte) error {
			var add int64
			fmt.Sscan(string(update), &add)
			if state += add; state != step*(step+1)/2 {
				return fmt.Errorf("state %d after step %d", state, step)
			}
			return nil
		},
		Level: func(int64, bool) { letIn() },
	})
	fmt.Println(err)
	close(over)
	job.Wait()
	for _, d := range donors {
		d.Close()
	}
	// Output: transfer: follow: context canceled
}

// member makes the calls to a donor that a member makes after a step.
func member(d *transfer.Donor, step, sum int64) error {
	if d.Wanted(step) {
		if err := d.Snapshot(step, func(w io.Writer) error { _, err := fmt.Fprint(w, sum); return err }); err != nil {
			return err
		}
	}
	if d.Logging() {
		return d.Update(step, func(w io.Writer) error { _, err := fmt.Fprint(w, step); return err })
	}
	return nil
}
