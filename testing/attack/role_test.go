package attack

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
)

// pace is the time that a member sleeps in each step in place of a computation.
const pace = 2 * time.Millisecond

// chain is the state of a member: a hash over the sums of all steps.
type chain struct {
	step int64
	hash [sha256.Size]byte
}

// commit adds the sum of the next step to the hash.
func (c *chain) commit(sum int64) {
	c.step++
	b := binary.LittleEndian.AppendUint64(c.hash[:], uint64(sum))
	c.hash = sha256.Sum256(b)
}

func (c *chain) Step() int64 { return c.step }

func (c *chain) Save(w io.Writer) error {
	_, err := w.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(c.step)), c.hash[:]...))
	return err
}

func (c *chain) Load(r io.Reader) error {
	var b [8 + sha256.Size]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return err
	}
	c.step = int64(binary.LittleEndian.Uint64(b[:]))
	copy(c.hash[:], b[8:])
	return nil
}

// result returns the result that a job of n members must have after the given number of steps.
func result(n, steps int64) string {
	var c chain
	for c.step < steps {
		c.commit(n * (c.step + 1))
	}
	return fmt.Sprintf("%x", c.hash)
}

// play is the main function of a member. It returns the exit status.
func play() int {
	steps, err := strconv.ParseInt(os.Getenv(stepsVariable), 10, 64)
	do := train
	if os.Getenv(roleVariable) == "cheat" {
		do = cheat
	}
	if err == nil {
		err = do(context.Background(), steps)
	}
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	return 0
}

// train takes at least the given number of steps, continues until the file of stopVariable exists,
// and prints the result.
func train(ctx context.Context, steps int64) error {
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	c, took := new(chain), []time.Duration(nil)
	g.Sessions().Hold(held(g, c), nil)
	for epoch := uint64(0); ; {
		s, err := g.Sessions().Next(ctx, epoch)
		if err != nil {
			return errors.Join(err, g.Close())
		}
		epoch = s.View.Epoch
		fmt.Printf("entered epoch=%d size=%d\n", epoch, s.Comm.Size())
		err = session(ctx, g, s, c, steps, &took)
		if err == nil {
			break
		}
		if !errors.Is(err, collective.ErrRevoked) {
			return errors.Join(err, g.Close())
		}
	}
	slices.Sort(took)
	fmt.Printf("result steps=%d hash=%x p50=%v p95=%v max=%v\n", c.step, c.hash,
		took[len(took)/2], took[len(took)*95/100], took[len(took)-1])
	return g.Close()
}

// session trains in one session. It returns nil if the job is done.
func session(ctx context.Context, g *elastic.Group, s *elastic.Session, c *chain, steps int64, took *[]time.Duration) error {
	for {
		begun := time.Now()
		<-time.After(pace)
		v := []int64{c.step + 1, 0}
		if _, err := os.Stat(os.Getenv(stopVariable)); err == nil && c.step >= steps {
			v[1] = 1
		}
		if err := collective.AllReduce(ctx, s.Comm, v, v, collective.Sum[int64]); err != nil {
			return err
		}
		c.commit(v[0])
		*took = append(*took, time.Since(begun))
		if err := g.Sessions().Committed(c.step); err != nil {
			return err
		}
		if v[1] > 0 {
			return nil // some member has seen the file, and all members end after this step
		}
		if stop, err := s.Boundary(ctx); stop || err != nil {
			return errors.Join(err, collective.ErrRevoked)
		}
		g.Sessions().Stable(c.step)
	}
}
