package e2e

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch"
)

const (
	// finishVariable is the environment variable with the path of a file. When the file exists, the
	// next step of the training is the last.
	finishVariable = "E2E_FINISH"
	stepPeriod     = 10 * time.Millisecond // time for computing in each step
)

// model is the model of the role train. It has the step, a number that depends on every step, and whether the last step is done.
// It is an elastic.State.
type model struct {
	step  int64
	value uint64
	final bool
}

// Step implements elastic.State.
func (m *model) Step() int64 { return m.step }

// Save implements elastic.State.
func (m *model) Save(w io.Writer) error {
	return errors.Join(binary.Write(w, binary.LittleEndian, m.step), binary.Write(w, binary.LittleEndian, m.value),
		binary.Write(w, binary.LittleEndian, m.final))
}

// Load implements elastic.State.
func (m *model) Load(r io.Reader) error {
	return errors.Join(binary.Read(r, binary.LittleEndian, &m.step), binary.Read(r, binary.LittleEndian, &m.value),
		binary.Read(r, binary.LittleEndian, &m.final))
}

// commit makes the next step. final says whether it is the last step, and must be equal at all
// peers.
func (m *model) commit(final bool) {
	m.step++
	m.value = m.value*6364136223846793005 + uint64(m.step)
	m.final = final
}

// elasticLoop is a program's own training loop. It continues after every change of members. If the
// view has no quorum for too long, it ends with status 75.
func elasticLoop(ctx context.Context) error {
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	m := &model{}
	g.Sessions().Hold(m, []elastic.Setting{{Name: "kind", Value: "e2e"}})
	err = sessions(ctx, g, m)
	if err == nil {
		g.Sessions().Emit(0, m.step, event.Done{Steps: m.step, Peers: 1, SHA256: fmt.Sprintf("%016x", m.value)})
	}
	err = errors.Join(err, g.Close())
	switch {
	case errors.Is(err, elastic.ErrLeft):
		fmt.Println("has left at step", m.step)
		return nil
	case errors.Is(err, elastic.ErrQuorum):
		fmt.Println("gives up:", err)
		os.Exit(launch.StatusQuorum)
	}
	return err
}

// sessions trains in one session after another.
func sessions(ctx context.Context, g *elastic.Group, m *model) error {
	for epoch := uint64(0); ; {
		s, err := g.Sessions().Next(ctx, epoch)
		if err != nil {
			return err
		}
		if epoch == 0 {
			fmt.Printf("joined rank=%d pid=%d id=%s addrs=%v\n", s.Rank, os.Getpid(), g.Self().ID.Short(), g.Self().Addrs)
		}
		epoch = s.View.Epoch
		fmt.Printf("session epoch=%d size=%d step=%d\n", epoch, s.Comm.Size(), m.step)
		if m.final {
			return nil
		}
		err = takeSteps(ctx, g, s, m)
		if err == nil && m.final {
			// All members must have received the sum of the last step before this peer leaves.
			err = collective.Barrier(ctx, s.Comm)
		}
		switch {
		case err != nil && !errors.Is(err, collective.ErrRevoked):
			return err
		case err == nil && m.final:
			return nil
		}
	}
}

// takeSteps trains until the training or the session ends.
func takeSteps(ctx context.Context, g *elastic.Group, s *elastic.Session, m *model) error {
	for !m.final {
		<-time.After(stepPeriod)
		votes := []int64{0}
		if _, err := os.Stat(os.Getenv(finishVariable)); err == nil {
			votes[0] = 1
		}
		if err := collective.AllReduce(ctx, s.Comm, votes, votes, collective.Sum[int64]); err != nil {
			return err
		}
		m.commit(votes[0] > 0)
		if err := g.Sessions().Committed(m.step); err != nil {
			return err
		}
		g.Sessions().Emit(s.View.Epoch, m.step, event.Step{Samples: s.Comm.Size(), ShareSamples: 1, Loss: 1 / float64(m.step)})
		if leave, err := s.Boundary(ctx); leave || err != nil {
			return err
		}
	}
	return nil
}
