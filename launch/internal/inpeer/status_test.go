package inpeer

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/spec"
)

func viewOf(epoch uint64, ids ...string) event.Event {
	return event.Event{Epoch: epoch, Body: event.View{Members: ids, Reason: "start"}}
}

func newTestReducer(id string, index int) *reducer {
	return newReducer("job", elastic.Member{ID: elastic.ID(id), Index: index, Host: "h"})
}

func TestReducerStates(t *testing.T) {
	r := newTestReducer("aaaaaaaa", 0)
	state := func() string {
		for _, m := range r.report(time.Time{}).Members {
			if m.ID == "aaaaaaaa" {
				return m.State
			}
		}
		return "missing"
	}
	for _, step := range []struct {
		e    event.Event
		want string
	}{
		{event.Event{Body: event.Path{Who: "x", Kind: "p2p"}}, spec.StateJoining},
		{viewOf(1, "bbbbbbbb", "aaaaaaaa"), spec.StateRunning},
		{event.Event{Body: event.Stall{Culprit: "bbbbbbbb"}}, spec.StateWaiting},
		{event.Event{Step: 1, Body: event.Step{}}, spec.StateRunning},
		{event.Event{Body: event.Stall{Culprit: "bbbbbbbb"}}, spec.StateWaiting},
		{event.Event{Body: event.Stall{Culprit: "bbbbbbbb", Over: true}}, spec.StateRunning},
		{event.Event{Body: event.Stall{Culprit: "bbbbbbbb"}}, spec.StateWaiting},
		{viewOf(2, "aaaaaaaa"), spec.StateRunning},
		{event.Event{Body: event.Done{Steps: 9}}, spec.StateDone},
	} {
		r.apply(step.e)
		if got := state(); got != step.want {
			t.Errorf("after %s: %s, want %s", step.e.Body.Name(), got, step.want)
		}
	}
	if s := r.report(time.Time{}); s.Step != 9 || s.Epoch != 2 {
		t.Errorf("got step %d, epoch %d", s.Step, s.Epoch)
	}
}

func TestReducerFigures(t *testing.T) {
	r := newTestReducer("aaaaaaaa", 3)
	r.apply(viewOf(1, "aaaaaaaa", "bbbbbbbb", "cccccccc"))
	r.apply(event.Event{Epoch: 1, Body: event.Path{Who: "bbbbbbbb", Kind: "direct"}})
	r.apply(event.Event{Epoch: 1, Body: event.Path{Who: "cccccccc", Kind: "unix"}})
	r.apply(viewOf(2, "bbbbbbbb", "aaaaaaaa", "dddddddd")) // a path that stays is not reported again
	r.apply(event.Event{Epoch: 2, Body: event.Path{Who: "bbbbbbbb", Kind: "p2p"}})
	r.apply(event.Event{Epoch: 2, Body: event.Path{Who: "dddddddd", Kind: "shm"}})
	r.apply(viewOf(3, "bbbbbbbb", "aaaaaaaa", "dddddddd"))
	r.apply(event.Event{Epoch: 2, Body: event.Path{Who: "cccccccc", Kind: "unix"}}) // no member any more
	r.apply(event.Event{Step: 6, Body: event.Shares{Old: []int{4, 4}, New: []int{3, 5}, Reason: "rank 0 is slow"}})
	r.apply(event.Event{Step: 5, Body: event.Step{Of: 12}})
	r.apply(event.Event{Step: 6, Body: event.Growth{Old: 64, New: 128}})
	r.apply(event.Event{Step: 7, Body: event.Step{Of: 9, Microbatches: [][2]int{{0, 3}, {8, 10}}, ShareSamples: 80, ComputeMS: 40, CommMS: 5, StepMS: 46, PredictedMS: 39}})
	want := spec.Status{Job: "job", Epoch: 3, Step: 7, Of: 9, Batch: 128, BatchSince: 6, Balanced: &spec.Balanced{Step: 6, Old: []int{4, 4}, Shares: []int{3, 5}, Reason: "rank 0 is slow"}, Members: []spec.MemberStatus{
		{ID: "bbbbbbbb", Index: -1, Rank: 0, State: spec.StateUnknown, SeenMS: -1, Path: "p2p"},
		{ID: "aaaaaaaa", Index: 3, Host: "h", Rank: 1, State: spec.StateRunning, Share: 5, Speed: 2000, ComputeMS: 40, CommMS: 5,
			StepMS: 46, PredictedMS: 39, Path: "p2p,shm", Paths: []spec.PeerPath{{ID: "bbbbbbbb", Kind: "p2p"}, {ID: "dddddddd", Kind: "shm"}}},
		{ID: "dddddddd", Index: -1, Rank: 2, State: spec.StateUnknown, SeenMS: -1, Path: "shm"},
	}}
	if got := r.report(time.Time{}); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// A report does not change when the reducer applies later events.
func TestReportIsACopy(t *testing.T) {
	r := newTestReducer("aaaaaaaa", 0)
	r.apply(viewOf(1, "aaaaaaaa"))
	before := r.report(time.Time{})
	r.apply(event.Event{Step: 5, Body: event.Step{ComputeMS: 3}})
	r.apply(event.Event{Body: event.Stall{Culprit: "x,y"}})
	if before.Members[0].ComputeMS != 0 || before.Members[0].State != spec.StateRunning || before.WaitingFor != nil {
		t.Errorf("report changed: %+v", before)
	}
}

// A peer reports how fast its job goes, and how long it will take.
func TestReportOfProgress(t *testing.T) {
	r, began := newTestReducer("aaaaaaaa", 0), time.Unix(100, 0)
	r.apply(event.Event{Time: began, Epoch: 1, Body: event.View{Members: []string{"aaaaaaaa"}}})
	for step := range int64(5) {
		at := began.Add(time.Duration(step) * time.Second)
		r.apply(event.Event{Time: at, Step: step + 1, Body: event.Step{Samples: 30, Loss: 2.5, Of: 11}})
	}
	got := r.report(began.Add(4 * time.Second)).Progress
	if want := (spec.Progress{Loss: 2.5, SamplesPerS: 30, StepsPerS: 1, ElapsedMS: 4000, LeftMS: 6000}); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// A job's progress is that of the peer with the latest step; it has run for as long as its first
// peer.
func TestMergeProgress(t *testing.T) {
	early := spec.Status{Step: 3, Progress: spec.Progress{Loss: 3, ElapsedMS: 900, LeftMS: 70}}
	metrics := map[string]float64{"accuracy": 0.5}
	late := spec.Status{Step: 4, Progress: spec.Progress{Loss: 2, ElapsedMS: 800, LeftMS: 60, Metrics: metrics}}
	want := spec.Progress{Loss: 2, ElapsedMS: 900, LeftMS: 60, Metrics: metrics}
	for _, reports := range [][]spec.Status{{early, late}, {late, early}} {
		if got := ctl.MergeStatus(reports).Progress; !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}
}

func TestMergeStatus(t *testing.T) {
	ids := []string{"aaaaaaaa", "bbbbbbbb", "cccccccc"}
	var reports []spec.Status
	for i, id := range ids[:2] { // the third does not answer
		r := newTestReducer(id, i)
		r.apply(viewOf(4, ids...))
		r.apply(event.Event{Step: int64(10 + i), Body: event.Step{}})
		r.apply(event.Event{Body: event.Stall{Culprit: "cccccccc"}})
		reports = append(reports, r.report(time.Time{}))
	}
	late := newTestReducer("dddddddd", 3) // has no view yet
	reports = append(reports, late.report(time.Time{}))
	s := ctl.MergeStatus(reports)
	if s.Job != "job" || s.Epoch != 4 || s.Step != 11 || !slices.Equal(s.WaitingFor, []string{"cccccccc"}) {
		t.Errorf("got %+v", s)
	}
	var states []string
	for _, m := range s.Members {
		states = append(states, m.ID[:1]+" "+m.State)
	}
	if want := []string{"a waiting", "b waiting", "c unknown", "d joining"}; !slices.Equal(states, want) {
		t.Errorf("members %v, want %v", states, want)
	}
}

// The merged status has the latest change of the shares, whichever peer reports it.
func TestMergeBalanced(t *testing.T) {
	reports := []spec.Status{{}, {Balanced: &spec.Balanced{Step: 4, Reason: "early"}}, {Balanced: &spec.Balanced{Step: 9, Reason: "late"}}, {}}
	for range reports {
		reports = append(reports[1:], reports[0])
		if got := ctl.MergeStatus(reports).Balanced; got == nil || got.Reason != "late" {
			t.Errorf("got %+v", got)
		}
	}
}

// The number of steps falls when the batch grows, so that of the peer with the latest step holds. A peer may not know it.
func TestMergeGrowth(t *testing.T) {
	reports := []spec.Status{{Step: 8, Of: 99, Batch: 64, BatchSince: 5}, {Step: 9, Of: 60, Batch: 128, BatchSince: 9}, {Step: 9}, {}}
	for range reports {
		reports = append(reports[1:], reports[0])
		if got := ctl.MergeStatus(reports); got.Step != 9 || got.Of != 60 || got.Batch != 128 || got.BatchSince != 9 {
			t.Errorf("got %+v", got)
		}
	}
}

func TestStepTime(t *testing.T) {
	for _, c := range []struct {
		name                string
		members             []spec.MemberStatus
		measured, predicted float64
	}{
		{"nobody", nil, 0, 0},
		{"nothing known", []spec.MemberStatus{{}, {}}, 0, 0},
		{"no prediction", []spec.MemberStatus{{ComputeMS: 10, StepMS: 12}, {ComputeMS: 7, StepMS: 13}}, 13, 0},
		{"the slowest one's rest counts", []spec.MemberStatus{{ComputeMS: 10, StepMS: 12, PredictedMS: 9}, {ComputeMS: 2, StepMS: 13, PredictedMS: 3}}, 13, 11},
		{"of other steps", []spec.MemberStatus{{ComputeMS: 10, StepMS: 8, PredictedMS: 9}}, 8, 9},
	} {
		measured, predicted := spec.Status{Members: c.members}.StepTime()
		if measured != c.measured || predicted != c.predicted {
			t.Errorf("%s: %v and %v, want %v and %v", c.name, measured, predicted, c.measured, c.predicted)
		}
	}
}

// The merged status does not depend on the order of answers.
func TestMergeOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var reports []spec.Status
		for i := range rapid.IntRange(1, 5).Draw(t, "peers") {
			r := newTestReducer(string(testID(i)), i)
			epoch := uint64(rapid.IntRange(1, 2).Draw(t, "epoch"))
			if rapid.Bool().Draw(t, "in") { // views differ by epoch only
				r.apply(viewOf(epoch, testID(0).Short(), testID(int(epoch)).Short()))
			}
			reports = append(reports, r.report(time.Time{}))
		}
		want := ctl.MergeStatus(slices.Clone(reports))
		if got := ctl.MergeStatus(rapid.Permutation(reports).Draw(t, "order")); !reflect.DeepEqual(got, want) {
			t.Fatalf("got  %+v\nwant %+v", got, want)
		}
	})
}

// A peer reports its knowledge of other members. Of several reports about a member, the report of
// the peer that heard last from the member is used. The member's own report takes precedence.
func TestDescribeOthers(t *testing.T) {
	self, other, third := testMember(0), testMember(1), testMember(2)
	other.Host, other.Index = "far", 3
	var reports []spec.Status
	for i, m := range []elastic.Member{self, third} {
		r := newTestReducer(m.ID.Short(), i)
		r.apply(viewOf(1, self.ID.Short(), other.ID.Short(), third.ID.Short()))
		r.apply(event.Event{Epoch: 1, Body: event.Path{Who: other.ID.Short(), Kind: "direct"}})
		r.apply(event.Event{Step: 1, Body: event.Shares{New: []int{5, 6, 7}}})
		heard := map[elastic.ID]time.Duration{other.ID: time.Duration(200-100*i) * time.Millisecond, self.ID: time.Second}
		reports = append(reports, describeOthers(r.report(time.Time{}), []elastic.Member{other, self, third}, heard))
	}
	want := spec.MemberStatus{ID: other.ID.Short(), Index: 3, Host: "far", Rank: 1, State: spec.StateUnknown, Share: 6, Path: "direct", SeenMS: 100}
	s := ctl.MergeStatus(reports)
	if len(s.Members) != 3 || !reflect.DeepEqual(s.Members[1], want) || s.Members[0].SeenMS != 0 || s.Members[0].State != spec.StateRunning {
		t.Errorf("got %+v, want %+v", s.Members, want)
	}
	if s := describeOthers(reports[0], nil, nil); s.Members[1].Share != 6 {
		t.Errorf("without members: %+v", s.Members)
	}
}

func TestControlStatus(t *testing.T) {
	job := spec.JobName("status", strconv.Itoa(os.Getpid())+"t")
	var peers []*ctl.Control
	for i := range 2 {
		r := newReducer(job, testMember(i))
		r.apply(viewOf(1, testID(0).Short(), testID(1).Short()))
		var mu sync.Mutex
		c, err := ctl.Serve(ctl.SocketName{Job: job, Index: i, PID: os.Getpid()}, ctl.Services{Status: func() spec.Status {
			mu.Lock()
			defer mu.Unlock()
			return r.report(time.Time{})
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		peers = append(peers, c)
	}
	found := ctl.Of(job)
	s, err := found.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if s.Job != job || len(s.Members) != 2 || s.Members[0].State != spec.StateRunning || s.Members[1].State != spec.StateRunning {
		t.Errorf("got %+v", s)
	}
	if err := peers[1].Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = found.Status(t.Context()); err != nil || s.Members[1].State != spec.StateUnknown {
		t.Errorf("with one peer gone: %+v, %v", s, err)
	}
	if err := peers[0].Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := found.Status(t.Context()); !errors.Is(err, ctl.ErrNoJob) {
		t.Errorf("with all gone: %v, want ErrNoJob", err)
	}
}
