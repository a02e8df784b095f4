package timeline

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/event"
)

// epoch0 is the begin of the jobs of these tests.
func epoch0() time.Time { return time.Unix(1_800_000_000, 0).UTC() }

// at returns an instant of a test.
func at(ms float64) time.Time { return epoch0().Add(time.Duration(ms * float64(time.Millisecond))) }

// log makes events of a job.
type log struct{ events []event.Event }

// add adds an event.
func (l *log) add(ms float64, peer string, index int, epoch uint64, step int64, b event.Body) {
	l.events = append(l.events, event.Event{Time: at(ms), Peer: peer, Index: index, Epoch: epoch, Step: step, Body: b})
}

// model folds the events.
func (l *log) model() *Job {
	j := New()
	for _, e := range l.events {
		j.Add(e)
	}
	return j
}

// member adds a launcher's event about a peer whose process began at a time.
func (l *log) member(ms float64, peer string, index int, began float64) {
	l.add(ms, peer, index, 0, 0, event.Member{Who: peer, WhoIndex: index, Host: "lab" + fmt.Sprint(index), Launcher: "L", PID: 100 + index, Began: at(began)})
}

// view adds the event of each member of a view.
func (l *log) view(ms float64, epoch uint64, reason string, members ...string) {
	for i, m := range members {
		l.add(ms, m, i, epoch, 0, event.View{Members: members, Voters: members, Reason: reason})
	}
}

// step returns a step of a peer that computes microbatches [first, end) of 8 samples, with its parts in ms.
func step(began float64, first, end int, t event.Times, compute float64) event.Step {
	t.Began = at(began)
	return event.Step{Microbatches: [][2]int{{first, end}}, ShareSamples: 8 * (end - first), Samples: 8 * 10, Loss: 1,
		ComputeMS: compute, Times: t, Of: 100,
		StepMS: compute + t.LostMS + t.PointMS + t.DataMS + t.WaitMS + t.ReduceMS + t.ApplyMS + t.CommitMS}
}

// wantUses compares the uses of a peer in milliseconds.
func wantUses(t *testing.T, s Snapshot, id string, want map[Use]float64) {
	t.Helper()
	for _, p := range s.Peers {
		if p.ID != id {
			continue
		}
		for u := range uses {
			if got := milliseconds(p.Uses[u]); math.Abs(got-want[Use(u)]) > 1e-6 {
				t.Errorf("%s: %s is %v ms, want %v", id, Use(u), got, want[Use(u)])
			}
		}
		return
	}
	t.Errorf("no peer %s", id)
}

// Other programs read the names of the fields, so they stay as they are. New ones may be added.
func TestNames(t *testing.T) {
	fields := func(prefix string, x any) (names []string) {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(x)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name != "" {
				names = append(names, prefix+name)
			}
		}
		return names
	}
	got := strings.Join(slices.Concat(fields("", Snapshot{}), fields("peer.", Peer{}), fields("view.", View{}), fields("goodput.", Goodput{}), fields("point.", Point{})), " ")
	const want = "seq begin time job epoch views recent_views step of loss samples_per_s steps_per_s left_ms grad_norm noise_scale lr metrics " +
		"batch shares ring counts peers former goodput stall quorum series evals checkpoints saved saved_ms messages done coverage lacks " +
		"peer.id peer.ids peer.index peer.launcher peer.host peer.machine peer.site peer.pid peer.rank peer.state peer.heard peer.begin peer.end " +
		"peer.uses peer.parked_ms peer.waited_for peer.strip peer.share peer.samples_per_s peer.steps peer.samples peer.last_step peer.lengths peer.length_ms " +
		"peer.path peer.links peer.cpu peer.cpu_s peer.rss peer.sent peer.received peer.exit peer.cause peer.reason " +
		"view.epoch view.time view.reason view.members view.joined view.left view.lost view.cost_ms view.recomputed " +
		"goodput.ratio goodput.peers goodput.wall_ms goodput.peer_ms goodput.uses goodput.straggler " +
		"point.first point.last point.time point.members point.loss point.samples point.samples_per_s point.step_ms point.slow_ms point.uses"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// churned is a job in which two peers start, one is killed, a third joins, and all ends.
func churned() (l log) {
	l.member(10, "a", 0, 0)
	l.member(10, "b", 1, 0)
	l.view(20, 1, "start", "a", "b")
	// Step 1 from 30 to 100. b computes longer.
	l.add(130, "a", 0, 1, 1, step(30, 0, 5, event.Times{DataMS: 5, WaitMS: 15, WaitFor: "b", ReduceMS: 4, CommitMS: 1, ApplyMS: 5}, 40))
	l.add(130, "b", 1, 1, 1, step(30, 5, 10, event.Times{ReduceMS: 4, CommitMS: 1, ApplyMS: 5}, 60))
	// Step 2 from 100 to 180, after an evaluation of 10 ms.
	acc := 0.5
	l.add(110, "a", 0, 1, 1, event.Eval{MS: 10, Accuracy: &acc})
	for i, id := range []string{"a", "b"} {
		l.add(190, id, i, 1, 2, step(100, 5*i, 5*i+5, event.Times{PointMS: 12}, 68))
	}
	// b dies at 200; a goes on alone at 300, and computes b's part again.
	l.add(205, "b", 1, 0, 0, event.Exit{PID: 101, Status: -1, Signal: 9})
	l.view(250, 2, "lost", "a")
	l.add(250, "a", 0, 2, 0, event.Lost{Who: "b", Cause: "exit", DetectMS: 50})
	alone := step(300, 0, 10, event.Times{LostMS: 20}, 100)
	alone.Recomputed = 5
	l.add(500, "a", 0, 2, 3, alone)
	// c joins: its process begins at 350, says hello at 380, and makes its first step at 500.
	l.member(380, "c", 1, 350)
	l.add(390, "c", 1, 0, 0, event.Parked{Who: "c", Reason: "slow"})
	l.view(440, 3, "join", "a", "c")
	l.add(441, "c", 1, 3, 0, event.Join{Who: "c", Reason: "level", MS: 30})
	for i, id := range []string{"a", "c"} {
		l.add(610, id, i, 3, 4, step(500, 5*i, 5*i+5, event.Times{}, 100))
		l.add(620, id, i, 3, 4, event.Done{Steps: 4, Peers: 2, SHA256: "ff"})
	}
	l.view(630, 4, "leave", "a")
	return l
}

// Each second of each peer has its use.
func TestLedger(t *testing.T) {
	l := churned()
	s := l.model().Snapshot()
	wantUses(t, s, "a", map[Use]float64{Start: 30, Data: 5, Useful: 40 + 68 + 50 + 100, Wait: 15, Communicate: 5, Apply: 5, Evaluate: 10,
		Other: 2 + 20, Change: 120 + 20 + 80, Recompute: 50})
	wantUses(t, s, "b", map[Use]float64{Start: 30, Useful: 60 + 68, Communicate: 5, Apply: 5, Evaluate: 10, Other: 2, Change: 25})
	wantUses(t, s, "c", map[Use]float64{Start: 30, CatchUp: 10 + 60, Useful: 100, Other: 20})
	want := []struct {
		state  string
		parked float64
		waited Waited
	}{
		{StateDone, 0, Waited{}},
		{StateLost, 0, Waited{Computing: 15 * time.Millisecond, Absent: 140 * time.Millisecond}},
		{StateDone, 50, Waited{}},
	}
	for i, p := range s.Peers {
		if w := want[i]; p.State != w.state || p.ParkedMS != w.parked || p.WaitedFor != w.waited {
			t.Errorf("%s: %s, parked %v ms, waited for %+v; want %+v", p.ID, p.State, p.ParkedMS, p.WaitedFor, w)
		}
	}
	if v := s.Recent[1]; v.CostMS != 140 || v.Recomputed != 5 || len(v.Lost) != 1 || len(v.Left) != 0 {
		t.Errorf("view 2: %+v", v)
	}
	if c := s.Counts; c.Steps != 4 || c.Samples != 4*80 || c.Views["start"] != 1 || c.Lost["exit"] != 1 || len(c.Lost) != 1 {
		t.Errorf("counts %+v", c)
	}
	if p := s.Peers[0]; p.Lengths != (Histogram{0, 0, 0, 0, 3, 1}) || p.LengthMS != 370 {
		t.Errorf("lengths %v, %v ms", p.Lengths, p.LengthMS)
	}
	if s.Coverage != (Coverage{Complete: 4}) {
		t.Errorf("coverage %+v", s.Coverage)
	}
	if got, want := s.Goodput.Line(), "goodput 47 % of 2 peers' 0.6 s: changes 0.2 s, other 4 %, evaluation 2 %, waiting 1 % (1 % for peer 1 on lab1)"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The time of a stall beyond its first report is no mere waiting, and its culprit is charged.
func TestStall(t *testing.T) {
	var l log
	l.view(0, 1, "start", "a", "b")
	l.add(1100, "a", 0, 1, 0, event.Stall{Culprit: "b", Phase: "not in the call", What: "allreduce", SinceMS: 1000})
	open := l.model().Snapshot()
	if open.Stall == nil || open.Stall.Culprit != "b" || open.Peers[0].State != StateWaiting {
		t.Errorf("%+v, %s", open.Stall, open.Peers[0].State)
	}
	l.add(3100, "a", 0, 1, 0, event.Stall{Culprit: "b", Phase: "not in the call", What: "allreduce", SinceMS: 3000, Over: true})
	l.add(3300, "a", 0, 1, 1, step(0, 0, 5, event.Times{WaitMS: 3000, WaitFor: "b", ReduceMS: 10}, 100))
	l.add(3300, "b", 1, 1, 1, step(0, 5, 10, event.Times{ReduceMS: 10}, 3100))
	s := l.model().Snapshot()
	wantUses(t, s, "a", map[Use]float64{Useful: 100, Wait: 1000, Stalled: 2000, Communicate: 10})
	if c := s.Counts; c.StallMS != 3000 || c.Stalls["not in the call"] != 1 {
		t.Errorf("counts %+v", c)
	}
	if got, want := s.Stragglers(), (Waited{Computing: time.Second, Call: 2 * time.Second}); len(got) != 1 || got[0].Waited != want || s.Stall != nil {
		t.Errorf("stragglers %+v", got)
	}
}

// The log tells which steps lack microbatches, or have them twice. What others report of a lost peer counts once.
func TestCoverage(t *testing.T) {
	var l log
	lost := event.Contribution{Peer: "b", Step: 3, Microbatches: [][2]int{{5, 10}}}
	for n := range int64(200) {
		for i, id := range []string{"a", "b", "c"} {
			s := step(float64(10*n), 5*i, 5*i+5, event.Times{}, 10)
			s.Samples = 15 * 8
			switch {
			case n+1 == 2 && id == "b", n+1 == 3 && id == "b", n+1 == 199 && id == "b":
				continue
			case n+1 == 3:
				s.OfLost = []event.Contribution{lost}
			case n+1 == 4 && id == "b":
				s.Microbatches[0][0]--
			case n+1 == 5:
				s.Digest = id
			}
			l.add(float64(10*n), id, i, 1, n+1, s)
		}
	}
	s := l.model().Snapshot()
	if want := (Coverage{Complete: 196, Missing: 1, Twice: 2, Open: 1, FirstMissing: 2, FirstTwice: 4}); s.Coverage != want {
		t.Errorf("got %+v, want %+v", s.Coverage, want)
	}
}

// A level has at most 512 points. The first covers the latest steps, and the last covers all.
func TestSeries(t *testing.T) {
	j := New()
	const n = 100_000
	for k := range int64(n) {
		s := step(float64(100*k), 0, 10, event.Times{WaitMS: 20}, 80)
		s.Loss = float64(k + 1)
		j.Add(event.Event{Time: at(float64(100*k) + 200), Peer: "a", Epoch: 1, Step: k + 1, Body: s})
	}
	s := j.Snapshot().Series
	for name, levels := range map[string][]Level{"steps": s.BySteps, "time": s.ByTime} {
		for i, l := range levels {
			samples, first, last := 0, l.Points[0], l.Points[len(l.Points)-1]
			for k, p := range l.Points {
				samples += p.Samples
				if k > 0 && (p.First != l.Points[k-1].Last+1 || math.Abs(p.SamplesS-800) > 1) {
					t.Fatalf("%s, level %d: %+v after %+v", name, i, p, l.Points[k-1])
				}
				if p.Loss != float64(p.First+p.Last)/2 || p.StepMS != 100 || p.Members != 1 || p.Uses.Goodput() != 0.8 {
					t.Fatalf("%s, level %d: %+v", name, i, p)
				}
			}
			whole, recent := i == len(levels)-1, i == 0
			if len(l.Points) > levelPoints || last.Last != n || samples != 80*int(last.Last-first.First+1) || whole && first.First != 1 || recent && first.First < n-6000 {
				t.Errorf("%s, level %d: %d points, %d samples, from %d to %d", name, i, len(l.Points), samples, first.First, last.Last)
			}
		}
	}
}

// Steps that begin to compute during the step before have that computing in their own time. The gaps cancel out.
func TestStepsThatBeginEarly(t *testing.T) {
	var l log
	l.view(0, 1, "start", "a")
	early := []float64{0, 8, 3, 9, 7, 0}
	for n := range int64(5) {
		s := step(100*float64(n)+early[n+1]-early[n], 0, 10, event.Times{}, 100-early[n+1]+early[n])
		l.add(100*float64(n+1)+50, "a", 0, 1, n+1, s)
	}
	l.add(700, "a", 0, 1, 6, step(600, 0, 10, event.Times{}, 100)) // here 100 ms are missing
	l.add(900, "a", 0, 1, 7, step(850, 0, 10, event.Times{}, 50))
	wantUses(t, l.model().Snapshot(), "a", map[Use]float64{Start: 8, Useful: 500 + 150, Other: 242})
}

// All members report a loss, and not all know its cause.
func TestLostOnce(t *testing.T) {
	var l log
	l.view(0, 1, "start", "a", "b", "c")
	l.view(10, 2, "lost", "a", "b")
	for i, cause := range []string{"", "reset", "silent", "", "silent"} {
		l.add(float64(10+i), string(rune('a'+i%2)), i%2, 2, 0, event.Lost{Who: "c", Cause: cause})
	}
	s := l.model().Snapshot()
	if c := s.Counts.Lost; len(c) != 1 || c["reset"] != 1 || s.Peers[2].Cause != "reset" || s.Recent[1].Lost[0].Cause != "reset" {
		t.Errorf("counts %v, %+v, %+v", c, s.Peers[2], s.Recent[1])
	}
}

// An attempt that fails without a change of the view, as in exact mode, is computed twice.
func TestFailedAttempt(t *testing.T) {
	var l log
	l.view(0, 1, "start", "a")
	l.add(100, "a", 0, 1, 1, step(0, 0, 10, event.Times{LostMS: 40}, 60))
	l.add(200, "a", 0, 1, 2, step(100, 0, 10, event.Times{LostMS: 30}, 70))
	wantUses(t, l.model().Snapshot(), "a", map[Use]float64{Useful: 130, Recompute: 70})
}

// A process that ends before it has an ID counts, too.
func TestNamelessExit(t *testing.T) {
	var l log
	l.add(1500, "", 2, 0, 0, event.Exit{PID: 7, Status: 1, RanS: 1})
	s := l.model().Snapshot()
	wantUses(t, s, "", map[Use]float64{Start: 1000})
	if p := s.Peers[0]; p.State != StateExited || p.Index != 2 || p.Exit.Status != 1 {
		t.Errorf("%+v", p)
	}
}

// A group that is too small stalls, and a peer that was put out catches up under another ID.
func TestQuorumAndRenewal(t *testing.T) {
	var l log
	l.member(0, "a", 0, 0)
	l.view(0, 1, "start", "a", "b")
	l.add(200, "a", 0, 1, 1, step(0, 0, 10, event.Times{}, 100))
	l.add(150, "a", 0, 1, 0, event.Quorum{State: "lost", Present: 1, Needed: 2})
	if s := l.model().Snapshot(); s.Quorum == nil || s.Peers[0].State != StateWaiting {
		t.Errorf("%+v", s.Quorum)
	}
	l.add(450, "a", 0, 1, 0, event.Quorum{State: "back", Present: 2, Needed: 2})
	l.add(600, "a", 0, 1, 2, step(500, 0, 10, event.Times{}, 100))
	l.add(650, "a", 0, 1, 0, event.Fenced{Who: "a", Reason: "silent"})
	l.member(660, "a2", 0, 0)
	l.view(700, 3, "join", "a2", "b")
	l.add(900, "a2", 0, 3, 3, step(800, 0, 10, event.Times{}, 100))
	s := l.model().Snapshot()
	wantUses(t, s, "a2", map[Use]float64{Useful: 300, Stalled: 300, Other: 100, CatchUp: 200})
	if p := s.Peers[0]; len(p.IDs) != 2 || p.State != StateRunning || len(s.Peers) != 2 {
		t.Errorf("%+v of %d", p, len(s.Peers))
	}
	if s.Lacks.Unheard != 0 { // b has reported views
		t.Errorf("%+v", s.Lacks)
	}
}

// A log of an older version has no Member events, and no times of steps but their lengths.
func TestOlderVersion(t *testing.T) {
	var l log
	l.view(0, 1, "start", "a", "b")
	for n := range int64(10) {
		for i, id := range []string{"a", "b"} {
			b := event.Step{Microbatches: [][2]int{{5 * i, 5*i + 5}}, ShareSamples: 40, Samples: 80, ComputeMS: 60, CommMS: 30, StepMS: 100}
			l.add(float64(n+1)*100, id, i, 1, n+1, b)
		}
	}
	wantUses(t, l.model().Snapshot(), "b", map[Use]float64{Useful: 600, Communicate: 300, Other: 100})
	// A fast loop has no event of most steps.
	l = log{}
	l.view(0, 1, "start", "a")
	for n := range 10 {
		l.add(float64(n+1)*100, "a", 0, 1, int64(1+10*n), event.Step{ComputeMS: 6, CommMS: 4, StepMS: 10})
	}
	wantUses(t, l.model().Snapshot(), "a", map[Use]float64{Start: 90, Useful: 6 + 9*60, Communicate: 4 + 9*40})
}

// The parts of steps that follow each other without a gap are the uses, to the nanosecond.
func TestStepsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j, n := New(), rapid.IntRange(1, 4).Draw(t, "peers")
		want, began := make([]Uses, n), make([]float64, n)
		part := rapid.Map(rapid.IntRange(0, 1000), func(x int) float64 { return float64(x) })
		for k := range rapid.Int64Range(1, 80).Draw(t, "steps") {
			for i := range n {
				x := event.Times{LostMS: part.Draw(t, "lost"), PointMS: part.Draw(t, "point"), DataMS: part.Draw(t, "data"),
					WaitMS: part.Draw(t, "wait"), WaitFor: "x", ReduceMS: part.Draw(t, "reduce"), ApplyMS: part.Draw(t, "apply"), CommitMS: part.Draw(t, "commit")}
				s := step(began[i], i, i+1, x, part.Draw(t, "compute"))
				began[i] += s.StepMS
				for u, ms := range map[Use]float64{Useful: s.ComputeMS, Recompute: x.LostMS, Other: x.PointMS, Data: x.DataMS, Wait: x.WaitMS,
					Communicate: x.ReduceMS + x.CommitMS, Apply: x.ApplyMS} {
					want[i][u] += duration(ms)
				}
				j.Add(event.Event{Time: at(began[i]), Peer: string(rune('a' + i)), Index: i, Epoch: 1, Step: k + 1, Body: s})
			}
		}
		var wait time.Duration
		for _, r := range j.peers.rows {
			if r.id() == "x" {
				continue
			}
			if k := int(r.id()[0] - 'a'); r.uses != want[k] {
				t.Fatalf("%s: %v, want %v", r.id(), r.uses, want[k])
			}
		}
		for _, u := range want {
			wait += u[Wait]
		}
		if got := j.peers.of("x", -1).row.waitedFor.Computing; got != wait {
			t.Fatalf("waited for x: %v, want %v", got, wait)
		}
		consistent(t, j)
	})
}

// consistent checks what must hold for each sequence of events: the uses of a peer add up to its time, no
// use is negative, and JSON can have all figures.
func consistent(t *rapid.T, j *Job) {
	for _, r := range j.peers.rows {
		sum := r.parked
		for u, d := range r.uses {
			if d < 0 {
				t.Fatalf("%v: %s is %v", r.ids, Use(u), d)
			}
			sum += d
		}
		if r.parked < 0 || sum != time.Duration(r.cursor-r.begin) {
			t.Fatalf("%v: uses %v, %v parked, add up to %v of %v", r.ids, r.uses, r.parked, sum, time.Duration(r.cursor-r.begin))
		}
	}
	s := j.Snapshot()
	for _, p := range s.Peers {
		if sum, want := milliseconds(p.Uses.Total())+p.ParkedMS, milliseconds(p.End.Sub(p.Begin)); math.Abs(sum-want) > 1e-6*want {
			t.Fatalf("%s: the snapshot has %v ms of %v", p.ID, sum, want)
		}
	}
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back Snapshot
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if line := s.Goodput.Line(); len(line) > maxLine || strings.Contains(line, "NaN") {
		t.Fatalf("%d bytes: %s", len(line), line)
	}
}

// draw returns a body with random fields, right and wrong.
func draw(t *rapid.T) event.Body {
	id := rapid.SampledFrom([]string{"a", "b", "c", "d", "", "a,b"})
	ids := rapid.SliceOfN(id, 0, 4)
	ms := rapid.OneOf(rapid.Float64Range(0, 500), rapid.SampledFrom([]float64{0, -5, math.NaN(), math.Inf(1), math.Inf(-1), 1e300, 5}))
	n := rapid.OneOf(rapid.IntRange(0, 20), rapid.SampledFrom([]int{-1, math.MaxInt, math.MinInt, 1 << 40}))
	when := rapid.Custom(func(t *rapid.T) time.Time { return moment(t) })
	some := rapid.SampledFrom([]string{"start", "join", "lost", "leave", "", "back", "waiting", strings.Repeat("x", 300)})
	switch rapid.IntRange(0, 20).Draw(t, "kind") {
	case 0:
		return event.View{Members: ids.Draw(t, "members"), Reason: some.Draw(t, "reason")}
	case 1:
		return event.Lost{Who: id.Draw(t, "who"), DetectMS: ms.Draw(t, "ms")}
	case 2:
		return event.Member{Who: id.Draw(t, "who"), WhoIndex: n.Draw(t, "index"), Host: some.Draw(t, "host"), Launcher: id.Draw(t, "launcher"),
			PID: n.Draw(t, "pid"), Began: when.Draw(t, "began")}
	case 3:
		return event.Exit{Status: n.Draw(t, "status"), RanS: ms.Draw(t, "ran")}
	case 4:
		return event.Leave{Who: id.Draw(t, "who"), Reason: some.Draw(t, "reason")}
	case 5:
		return event.Parked{Who: id.Draw(t, "who")}
	case 6:
		return event.Fenced{Who: id.Draw(t, "who")}
	case 7:
		return event.Stall{Culprit: id.Draw(t, "culprit"), SinceMS: ms.Draw(t, "ms"), Over: rapid.Bool().Draw(t, "over")}
	case 8:
		return event.Quorum{State: some.Draw(t, "state")}
	case 9:
		return event.Done{Loss: new(float64)}
	case 10:
		x := ms.Draw(t, "loss")
		return event.Eval{MS: ms.Draw(t, "ms"), Loss: &x}
	case 11:
		return event.Link{From: "b", MBs: ms.Draw(t, "speed")}
	case 18:
		return event.Usage{CPUS: ms.Draw(t, "cpu"), Sent: map[string]int64{"shm": 1}}
	case 12:
		return event.Resync{Who: id.Draw(t, "who"), MS: ms.Draw(t, "ms")}
	case 13:
		return event.Saving{}
	case 14:
		return event.Path{Who: id.Draw(t, "who"), Kind: some.Draw(t, "kind")}
	case 15:
		return event.Notice{Cause: "x"}
	case 16:
		return event.Audit{Who: ids.Draw(t, "who"), Out: rapid.Bool().Draw(t, "out")}
	case 17:
		return event.Job{Steps: int64(n.Draw(t, "steps")), Settings: map[string]string{"a": "b"}}
	}
	s := event.Step{ComputeMS: ms.Draw(t, "compute"), CommMS: ms.Draw(t, "comm"), StepMS: ms.Draw(t, "step"), Samples: n.Draw(t, "samples"),
		ShareSamples: n.Draw(t, "share"), Loss: ms.Draw(t, "loss"), Recomputed: n.Draw(t, "recomputed"), Of: int64(n.Draw(t, "of")),
		Times: event.Times{LostMS: ms.Draw(t, "lost"), PointMS: ms.Draw(t, "point"), WaitMS: ms.Draw(t, "wait"),
			WaitFor: id.Draw(t, "for"), ReduceMS: ms.Draw(t, "reduce"), Began: when.Draw(t, "began")},
		Metrics: map[string]float64{"m": ms.Draw(t, "metric")}}
	for range rapid.IntRange(0, 3).Draw(t, "ranges") {
		s.Microbatches = append(s.Microbatches, [2]int{n.Draw(t, "first"), n.Draw(t, "end")})
	}
	s.OfLost = []event.Contribution{{Peer: id.Draw(t, "who"), Step: int64(n.Draw(t, "n")), Microbatches: s.Microbatches}}
	return s
}

// moment returns a time near the begin of the tests' jobs, or seldom any.
func moment(t *rapid.T) time.Time {
	if rapid.IntRange(0, 9).Draw(t, "wild") == 0 {
		return rapid.SampledFrom([]time.Time{{}, time.Unix(1<<60, 0), time.Unix(-5, 0), time.Unix(earliest, 0), time.Unix(latest, 0)}).Draw(t, "time")
	}
	return at(rapid.Float64Range(0, 3000).Draw(t, "ms"))
}

// Whatever the events say, the ledger adds up.
func TestGarbage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j := New()
		for range rapid.IntRange(0, 60).Draw(t, "events") {
			j.Add(event.Event{Time: moment(t), Peer: rapid.SampledFrom([]string{"a", "b", "c", ""}).Draw(t, "peer"),
				Index: rapid.IntRange(-1, 3).Draw(t, "index"), Epoch: rapid.Uint64Range(0, 5).Draw(t, "epoch"),
				Step: rapid.OneOf(rapid.Int64Range(-1, 200), rapid.Just(int64(math.MaxInt64))).Draw(t, "step"), Body: draw(t)})
		}
		consistent(t, j)
	})
}
