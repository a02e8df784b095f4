package elastic_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
)

// orphans returns two newcomers that look for a member that does not live, and a function that waits for
// their first views, or errors.
func orphans(t *testing.T, p *peers) (groups []*elastic.Group, wait func() ([]*elastic.Session, []error)) {
	t.Helper()
	sessions, errs := make([]*elastic.Session, 2), make([]error, 2)
	var all sync.WaitGroup
	for i := range 2 {
		cfg := p.late(p.members[i], elastic.Member{ID: "nobody-lives-here"})
		cfg.RejoinTimeout = time.Minute
		g, err := elastic.Join(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, g)
		all.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			sessions[i], errs[i] = g.Sessions().Next(ctx, 0)
		})
	}
	return groups, func() ([]*elastic.Session, []error) {
		all.Wait()
		return sessions, errs
	}
}

// Newcomers that are told to wait do not give up, however long that takes, and then begin a view of their
// own, or go on to look for members, or learn why there is no job.
func TestAgain(t *testing.T) {
	for name, order := range map[string]struct {
		then  func(a elastic.Admin, first []elastic.Member)
		wrong error
		text  string
	}{
		"begin":    {func(a elastic.Admin, first []elastic.Member) { a.Begin(first) }, nil, ""},
		"resume":   {func(a elastic.Admin, _ []elastic.Member) { a.Resume() }, elastic.ErrQuorum, "no member has answered for 1m"},
		"abort":    {func(a elastic.Admin, _ []elastic.Member) { a.Abort("it is over") }, elastic.ErrNoView, "it is over"},
		"finished": {func(a elastic.Admin, _ []elastic.Member) { a.Finished() }, elastic.ErrFinished, "finished"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPeers(2)
				groups, wait := orphans(t, p)
				<-time.After(time.Second)
				for _, g := range groups {
					if !g.Admin().Again() {
						t.Error("a newcomer says that it does not wait")
					}
				}
				<-time.After(2 * time.Minute)
				for _, g := range groups {
					order.then(g.Admin(), p.members)
				}
				sessions, errs := wait()
				for i, s := range sessions {
					switch {
					case order.wrong == nil && (errs[i] != nil || len(s.View.Members) != 2):
						t.Errorf("got %v, %v, want a view of both", s, errs[i])
					case order.wrong == nil && groups[i].Admin().Again():
						t.Error("a member says that it waits to join")
					case order.wrong != nil && (!errors.Is(errs[i], order.wrong) || !strings.Contains(errs[i].Error(), order.text)):
						t.Errorf("got %v, want %v with %q", errs[i], order.wrong, order.text)
					}
				}
				var all sync.WaitGroup
				for _, g := range groups {
					all.Go(func() {
						if err := g.Close(); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				if groups[0].Admin().Again() {
					t.Error("a closed group says that it waits to join")
				}
				if err := p.network.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
