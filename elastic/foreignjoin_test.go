package elastic_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/elastic/member"
	"github.com/elrun/elrun/event"
)

// unasked is a Network that answers no requests.
type unasked struct{ elastic.Network }

func (unasked) Serve(func(context.Context, elastic.ID, []byte, io.Writer) error) {}

// filter is a Network that loses the messages for which drop returns true.
type filter struct {
	elastic.Network
	drop func(to elastic.ID, msg []byte) bool
}

func (f filter) Send(ctx context.Context, to elastic.ID, msg []byte) error {
	if f.drop(to, msg) {
		return nil
	}
	return f.Network.Send(ctx, to, msg)
}

// The first bytes of control messages, as in control.go.
const (
	encodeMachineMessage = 1
	foreignJoinMessage   = 4
)

// vouched makes all members peers of one launcher, which has started all of them.
func (p *peers) vouched(launcher string) {
	for i := range p.members {
		p.members[i].Launcher = launcher
	}
}

// heirs counts at one member, whose group is g. After twenty steps in a session of the given size, by when
// the heartbeats of all others have come, all others die at once, and Admin.Dead reports it. This member
// continues to count up to the step until. heirs returns the error of its loop.
func heirs(ctx context.Context, p *peers, g *elastic.Group, size int, until int64) (*loop, error) {
	l := &loop{g: g, state: new(replayer), until: until, pause: oneStep}
	g.Sessions().Hold(l.state, nil)
	l.before = func(int64, uint64) {
		if l.sizes[size] < 20 || l.sizes[1] > 0 {
			return
		}
		for _, m := range p.members {
			if m.ID != g.Self().ID {
				p.network.Kill(m.ID)
			}
		}
		after(20 * time.Millisecond)
		for _, m := range p.members {
			if m.ID != g.Self().ID {
				g.Admin().Dead(m.ID)
			}
		}
	}
	return l, l.run(ctx)
}

// A peer of another launcher is admitted only after every member has acknowledged that there are
// several launchers. From then on no launcher's report replaces a vote.
func TestForeignLauncher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(3)
		p.vouched("first")
		stranger := elastic.Member{ID: "stranger", Index: 3, Launcher: "second"}
		begun := time.Now()
		const deaf = 3 * time.Second
		p.adjust = func(i int, cfg *elastic.Config) {
			cfg.Sole, cfg.RejoinTimeout = true, 5*time.Second
			if i == 1 {
				cfg.Network = unasked{cfg.Network} // this member receives no offer
				return
			}
			cfg.Network = filter{cfg.Network, func(to elastic.ID, msg []byte) bool {
				return to == p.members[1].ID && msg[0] == foreignJoinMessage && time.Since(begun) < deaf
			}}
		}
		incumbents := slices.Clone(p.members)
		p.members = append(p.members, stranger)
		errs := p.each(t, func(ctx context.Context, i int) error {
			cfg := p.late(stranger, incumbents...)
			if i < 3 {
				cfg = p.config(i, incumbents)
			}
			g, err := elastic.Join(ctx, cfg)
			if err != nil {
				return err
			}
			if i > 0 {
				l := &loop{g: g, state: new(replayer), until: 1 << 40, pause: oneStep}
				g.Sessions().Hold(l.state, nil)
				_ = l.run(ctx) // ends when it is killed
				return g.Close()
			}
			_, err = heirs(ctx, p, g, 4, 1<<40)
			return errors.Join(want(err, elastic.ErrQuorum), g.Close())
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for _, e := range p.sink.of("view") {
			if slices.Contains(e.Body.(event.View).Members, stranger.ID.Short()) && e.Time.Sub(begun) < deaf {
				t.Errorf("let in after %v: %+v", e.Time.Sub(begun), e)
			}
		}
	})
}

// A peer that the single launcher starts late relies on that launcher's reports, but only if all
// other members do.
func TestLatePeerOfOneLauncher(t *testing.T) {
	for _, sole := range []bool{true, false} {
		t.Run(fmt.Sprint(sole), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeers(3)
				p.vouched("first")
				p.adjust = func(i int, cfg *elastic.Config) { cfg.Sole = sole || i == 1 }
				incumbents := p.members[:2:2]
				errs := p.each(t, func(ctx context.Context, i int) error {
					cfg := p.config(i, incumbents)
					if i == 2 {
						cfg = p.late(p.members[2], incumbents...)
						cfg.Sole, cfg.RejoinTimeout = true, 5*time.Second
					}
					g, err := elastic.Join(ctx, cfg)
					if err != nil {
						return err
					}
					if i < 2 {
						l := &loop{g: g, state: new(replayer), until: 1 << 40, pause: oneStep}
						g.Sessions().Hold(l.state, nil)
						_ = l.run(ctx) // ends when it is killed
						return g.Close()
					}
					l, err := heirs(ctx, p, g, 3, 400)
					if !sole {
						err = want(err, elastic.ErrQuorum)
					}
					return errors.Join(err, l.state.right(), g.Close())
				})
				if err := errors.Join(errs...); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// A peer that has made no offer is never admitted, however often its machine asks.
func TestUninvited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPeers(2)
		errs := p.joined(t, func(ctx context.Context, g *elastic.Group, s *elastic.Session) error {
			if s.Rank == 0 {
				p.intrude(ctx)
			}
			return collective.Barrier(ctx, s.Comm)
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		for _, e := range p.sink.of("view") {
			if slices.Contains(e.Body.(event.View).Members, "intruder") {
				t.Fatalf("it was let in: %+v", e)
			}
		}
	})
}

// intrude sends requests for admission for three seconds, without an offer.
func (p *peers) intrude(ctx context.Context) {
	control := p.network.Member("intruder")
	m := member.NewJoiner(member.Config{Self: member.Member{ID: "intruder", Info: "{}"},
		Contacts: []member.ID{member.ID(p.members[0].ID), member.ID(p.members[1].ID)}})
	for range 300 {
		m.Tick()
		for _, msg := range m.Ready().Messages {
			_ = control.Send(ctx, elastic.ID(msg.To), member.Encode([]byte{encodeMachineMessage}, msg))
		}
		select {
		case e := <-control.Events():
			if e.Kind != elastic.PeerMessage || e.Data[0] != encodeMachineMessage {
				continue
			}
			if msg, err := member.Decode(e.Data[1:]); err == nil {
				msg.From, msg.To = member.ID(e.Peer), "intruder"
				m.Step(member.Received{Message: msg})
			}
		case <-time.After(10 * time.Millisecond):
		}
	}
}
