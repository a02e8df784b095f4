package elastic_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/cluster"
	"github.com/elrun/elrun/testing/simnet"
)

// A nil or zero group or session, and a nil context, are errors with a clear text.
func TestNoGroup(t *testing.T) {
	for _, g := range []*elastic.Group{nil, {}} {
		_, errNext := g.Sessions().Next(t.Context(), 0)
		for _, err := range []error{errNext, g.Sessions().Committed(1)} {
			if err == nil || !strings.Contains(err.Error(), "the group is nil") {
				t.Errorf("%v", err)
			}
		}
		g.Sessions().Hold(nil, nil)
		g.Sessions().OnQuorumLost(func() {})
		g.Sessions().Stable(1)
		g.Busy("here")()
		g.Leave()
		g.Admin().Dead("nobody")
		g.Admin().Begin(nil)
		if g.Admin().Again() {
			t.Error("nobody waits")
		}
		g.Admin().Resume()
		g.Admin().Abort("")
		g.Admin().Finished()
		g.Sessions().Emit(1, 1, nil)
		if err := g.Close(); err != nil || g.Self().ID != "" {
			t.Errorf("%v, %v", err, g.Self())
		}
	}
	for _, s := range []*elastic.Session{nil, {}} {
		s.Busy("here")()
		if done, err := s.Retry(t.Context(), elastic.Retry{}); err != nil || done == nil {
			t.Errorf("%v", err)
		}
		if _, err := s.Boundary(t.Context()); err == nil || s.Stale() || !strings.Contains(err.Error(), "the session is nil") {
			t.Errorf("%v", err)
		}
	}
	if _, err := elastic.Join(t.Context(), elastic.Config{Peers: []elastic.Member{{ID: "a"}}}); err == nil {
		t.Error("joined without a network")
	}
}

// Committed needs a state; Next and Boundary need a context.
func TestWithoutStateOrContext(t *testing.T) {
	var none context.Context
	cluster.Start(t, 1, simnet.New(simnet.Config{}), func(ctx context.Context, g *elastic.Group) error {
		if err := g.Sessions().Committed(1); err == nil || !strings.Contains(err.Error(), "call Hold") {
			t.Errorf("without a state: %v", err)
		}
		if _, err := g.Sessions().Next(none, 0); err == nil || !strings.Contains(err.Error(), "context is nil") {
			t.Errorf("without a context: %v", err)
		}
		s, err := g.Sessions().Next(ctx, 0)
		if err != nil {
			return err
		}
		if _, err := s.Boundary(none); err == nil {
			return errors.New("a boundary without a context")
		}
		return nil
	}).Wait()
}
