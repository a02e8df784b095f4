package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch"
)

// callLength is the number of elements of the longest vector in the role of spec.Calls.
const callLength = 256 << 10

// callLoop makes one collective call after another, in all sessions, until the file spec.Release
// exists. When a view is revoked, it prints the time and the cause.
func callLoop(ctx context.Context, s spec) error {
	stop := answer()
	defer stop()
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	c := caller{spec: s}
	for epoch := uint64(0); ; {
		var session *elastic.Session
		if session, err = g.Sessions().Next(ctx, epoch); err != nil {
			break
		}
		epoch = session.View.Epoch
		if err = c.settle(session); err != nil {
			break
		}
		err = c.calls(ctx)
		if err == nil {
			g.Sessions().Emit(epoch, 1, event.Done{Steps: 1, Peers: session.Comm.Size(), SHA256: "0"})
		}
		if !errors.Is(err, collective.ErrRevoked) {
			break
		}
		fmt.Printf("noticed epoch=%d at=%d: %v\n", epoch, time.Now().UnixNano(), err)
	}
	return errors.Join(err, c.free(), g.Close())
}

// caller is a peer that makes calls. It is not safe for concurrent use.
type caller struct {
	spec    spec
	session *elastic.Session
	mine    [2][]float32 // destination and source in private memory
	ours    [2][]float32 // destination and source in shared memory, if ranks share memory
}

// settle prepares the vectors for the calls of a session.
func (c *caller) settle(s *elastic.Session) error {
	c.session = s
	fmt.Printf("session epoch=%d size=%d shared=%t at=%d\n", s.View.Epoch, s.Comm.Size(), s.Comm.SharesMemory(), time.Now().UnixNano())
	for i := range c.ours {
		if c.ours[i] != nil && (collective.IsShared(s.Comm, c.ours[i]) || !s.Comm.SharesMemory()) {
			continue
		}
		err := collective.Free(s.Comm, c.ours[i]) // a failed call has taken the vector out of the shared memory
		if err != nil {
			return err
		}
		if c.ours[i], err = collective.Alloc[float32](s.Comm, callLength); err != nil {
			return err
		}
		c.mine[i] = make([]float32, callLength)
	}
	return nil
}

// free frees the memory that settle has allocated.
func (c *caller) free() error {
	var errs []error
	for _, v := range c.ours {
		if v != nil {
			errs = append(errs, collective.Free(c.session.Comm, v))
		}
	}
	return errors.Join(errs...)
}

// calls makes calls of all kinds and lengths until all ranks agree to end, or until a call fails. All ranks make the same calls.
func (c *caller) calls(ctx context.Context) error {
	for round := 0; ; round++ {
		length := 1 << (round % 19) // up to callLength
		vectors := c.mine
		if round%2 == 0 {
			vectors = c.ours
		}
		if err := c.call(ctx, round%5, vectors[0][:length], vectors[1][:length]); err != nil {
			return err
		}
		if round%16 != 15 {
			continue
		}
		leave, err := c.session.Boundary(ctx)
		if err != nil {
			return err
		}
		end := []int32{0}
		if c.spec.released() {
			end[0] = 1
		}
		if err := collective.AllReduce(ctx, c.session.Comm, end, end, collective.Max[int32]); err != nil || end[0] > 0 {
			return err
		}
		if leave {
			return fmt.Errorf("%w: a later view", collective.ErrRevoked)
		}
	}
}

// call makes one call and checks the result.
func (c *caller) call(ctx context.Context, kind int, dst, src []float32) error {
	comm := c.session.Comm
	n := comm.Size()
	sum := float32(n * (n + 1) / 2) // sum over all ranks, because each rank contributes its number plus one
	fill(src, float32(comm.Rank()+1))
	want := sum
	var err error
	switch kind {
	case 0, 1:
		err = collective.AllReduce(ctx, comm, dst, src, collective.Sum[float32])
	case 2:
		err = collective.Broadcast(ctx, comm, src, n-1)
		dst, want = src, float32(n)
	case 3:
		part := src[:(len(src)+n-1)/n]
		dst = make([]float32, n*len(part))
		if err = collective.AllGather(ctx, comm, dst, part); err == nil && (dst[0] != 1 || dst[len(dst)-1] != float32(n)) {
			err = fmt.Errorf("gathered %v and %v, want 1 and %d", dst[0], dst[len(dst)-1], n)
		}
		return err
	case 4:
		return collective.Barrier(ctx, comm)
	}
	if err != nil {
		return err
	}
	for _, i := range []int{0, len(dst) / 2, len(dst) - 1} {
		if dst[i] != want {
			return fmt.Errorf("call %d: element %d of %d is %v, want %v", kind, i, len(dst), dst[i], want)
		}
	}
	return nil
}

func fill(v []float32, x float32) {
	for i := range v {
		v[i] = x
	}
}
