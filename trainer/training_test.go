package trainer_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/testing/simnet"
	"github.com/elrun/elrun/trainer"
)

// judged has the observations of a peer in a training run with decision points.
type judged struct {
	points []int64 // steps of the decision points
	scores []trainer.Score
	status trainer.Status
	kept   string // the kept parameters as bits
}

// admitter trains with a decision point after every two steps. The score follows from the parameters, and neither rises nor
// falls steadily. The best model is kept. The job ends after a number of decision points, patience, that have brought no better
// model.
func admitter(ctx context.Context, g *elastic.Group, m trainer.Model, cfg trainer.Config, patience int) (j judged, err error) {
	run := trainer.New(g, m, cfg)
	best, worse := 0, 0
	for p := range run.Points(ctx, 2) {
		lo, hi := p.Part(1000)
		score, err := p.Sum(quality(m, lo, hi))
		if err != nil {
			continue
		}
		j.points, j.scores = append(j.points, p.Step), append(j.scores, score)
		if score.Correct > best {
			best, worse = score.Correct, 0
			p.Keep()
		} else if worse++; worse == patience {
			p.Stop()
		}
	}
	j.status = run.Status()
	for _, p := range run.Kept() {
		j.kept += fmt.Sprint(p.Name, p.Data)
	}
	return j, run.Err()
}

// quality scores a part of a test set.
func quality(m trainer.Model, lo, hi int) trainer.Score {
	s := trainer.Score{Samples: hi - lo}
	bits := math.Float32bits(m.Params[0].Data[0])
	for i := lo; i < hi; i++ {
		if (bits*2654435761+uint32(i)*40503)>>16%7 < 3 {
			s.Correct++
		}
	}
	return s
}

// judging makes the members of an arena use decision points. It returns the observations of each
// member, by ID.
func (a *arena) judging(patience int) map[elastic.ID]*judged {
	all := make(map[elastic.ID]*judged)
	before := a.adjust
	a.adjust = func(x *actor) {
		if before != nil {
			before(x)
		}
		j := new(judged)
		all[x.self.ID] = j
		x.train = func(ctx context.Context, g *elastic.Group, m trainer.Model) (err error) {
			*j, err = admitter(ctx, g, m, x.cfg, patience)
			return err
		}
	}
	return all
}

// judgedAlone returns the observations of a single process.
func judgedAlone(t *testing.T, cfg trainer.Config, patience int, change func(a *arena)) (j judged, sha string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		a := newArena(1, cfg)
		if change != nil {
			change(a)
		}
		all := a.judging(patience)
		a.play(t)
		x := a.actors[0]
		if x.err != nil || x.result == nil {
			t.Fatal(x.err)
		}
		j, sha = *all[x.self.ID], x.result.SHA256
	})
	return j, sha
}

// same checks that all members that were not killed have the same observations as a single process.
func (a *arena) same(t *testing.T, about string, all map[elastic.ID]*judged, want judged, sha string) {
	t.Helper()
	for _, x := range a.actors {
		if x.killed.Load() {
			continue
		}
		got := all[x.self.ID]
		if x.err != nil || x.result == nil {
			t.Errorf("%s: %s: error %v, result %v", about, x.self.ID, x.err, x.result)
			continue
		}
		if x.result.SHA256 != sha || x.result.Steps != want.status.Step || got.status != want.status || got.kept != want.kept {
			t.Errorf("%s: %s has %v and %+v, kept %.60s; want %s and %+v, %.60s", about, x.self.ID, x.result, got.status, got.kept, sha, want.status, want.kept)
		}
		if n := len(got.points); n > len(want.points) || !slices.Equal(got.points, want.points[len(want.points)-n:]) ||
			!slices.Equal(got.scores, want.scores[len(want.points)-n:]) {
			t.Errorf("%s: %s saw %v at %v, want %v at %v", about, x.self.ID, got.scores, got.points, want.scores, want.points)
		}
	}
}

// With any number of peers, all see the same scores, keep the same model and stop after the same step.
func TestPoints(t *testing.T) {
	for _, patience := range []int{2, 99} {
		cfg := churning(13, true)
		want, sha := judgedAlone(t, cfg, patience, nil)
		if stopped := want.status.Stopped; stopped != (patience == 2) || want.status.Kept == 0 || want.status.Kept == want.status.Step {
			t.Fatalf("patience %d: %+v shows little", patience, want.status)
		}
		for n := 2; n <= 4; n++ {
			synctest.Test(t, func(t *testing.T) {
				a := newArena(n, cfg)
				all := a.judging(patience)
				a.play(t)
				a.same(t, fmt.Sprintf("%d peers, patience %d", n, patience), all, want, sha)
			})
		}
	}
}

// Steps begin early, but not across a decision point.
func TestPointsBetweenStepsThatBeginEarly(t *testing.T) {
	cfg := dyadic(9)
	want, sha := judgedAlone(t, cfg, 99, func(a *arena) { a.eagerly(t, nil) })
	synctest.Test(t, func(t *testing.T) {
		a := newArena(3, cfg)
		models := a.eagerly(t, nil)
		all := a.judging(99)
		a.play(t)
		a.same(t, "steps that begin early", all, want, sha)
		for _, m := range models() {
			if n := m.resumed.Load(); n != 4 {
				t.Errorf("%d steps have begun early", n)
			}
		}
	})
}

// A peer dies before one of its messages, while another joins. The test tries many messages. The
// others reach the result of a single process.
func TestKillAtPoints(t *testing.T) {
	t.Parallel()
	cfg := churning(9, true)
	const patience = 2
	want, sha := judgedAlone(t, cfg, patience, nil)
	play := func(t *testing.T, about string, kill func(simnet.Message) bool) *staged {
		s := stage(3, cfg, kill)
		all := s.judging(patience)
		s.play(t)
		s.same(t, about, all, want, sha)
		return s
	}
	var sent census
	synctest.Test(t, func(t *testing.T) { play(t, "no kill", sent.add) })
	points := sent.points(pick(1, dozen), "data")
	t.Run("points", func(t *testing.T) {
		inParallel(t, len(points), func(t *testing.T, i int) {
			play(t, points[i].String(), points[i].kill())
		})
	})
	t.Logf("%d kills", len(points))
}

// A mistake of a program ends the job at its peer, with an error that describes the mistake.
func TestWrongLoopsOfPoints(t *testing.T) {
	boom := errors.New("no test set")
	for want, body := range map[string]func(p *trainer.Point) bool{
		"left the loop of Points after step 4": func(p *trainer.Point) bool { return p.Step != 4 },
		"no test set":                          func(p *trainer.Point) bool { p.Fail(boom); return true },
		"at most 8 sums": func(p *trainer.Point) bool {
			for range 9 {
				_, _ = p.Sum(trainer.Score{})
			}
			return true
		},
	} {
		runGroups(t, 1, nil, func(ctx context.Context, g *elastic.Group) error {
			run := trainer.New(g, newCounter(2, 2).Model(), counting(2))
			if run.Err() == nil || run.Kept() != nil || run.Status().Step != 0 {
				t.Errorf("before it runs: %+v", run.Status())
			}
			for p := range run.Points(ctx, trainer.EveryPass) {
				if !body(p) {
					break
				}
			}
			if err := run.Err(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
			for range run.Points(ctx, trainer.EveryPass) {
				t.Error("points of a training that has ended")
			}
			if err := run.Err(); !strings.Contains(err.Error(), "twice") {
				t.Errorf("error %v of a second call", err)
			}
			return nil
		})
	}
}

// A mistake that is found after the last step is an error at all peers: they have different
// programs.
func TestAMistakeAtTheLastPoint(t *testing.T) {
	runGroups(t, 2, nil, func(ctx context.Context, g *elastic.Group) error {
		run := trainer.New(g, newCounter(2, 2).Model(), counting(9))
		for p := range run.Points(ctx, 3) {
			if p.Step < p.Of || g.Self().Index == 0 {
				_, _ = p.Sum(trainer.Score{})
			}
		}
		if s := run.Status(); !errors.Is(s.Err, collective.ErrMistake) || s.Step != s.Of {
			t.Errorf("peer %d: %+v", g.Self().Index, s)
		}
		return nil
	})
}

// A program may also leave the loop after it has called Stop.
func TestStopAndLeave(t *testing.T) {
	runGroups(t, 2, nil, func(ctx context.Context, g *elastic.Group) error {
		run := trainer.New(g, newCounter(2, 2).Model(), counting(9))
		for p := range run.Points(ctx, 3) {
			<-time.After(time.Duration(g.Self().Index) * time.Second) // simulates a slow evaluation
			p.Stop()
			break
		}
		if s := run.Status(); s.Err != nil || s.Step != 3 || !s.Stopped {
			t.Errorf("%+v", s)
		}
		return nil
	})
}
