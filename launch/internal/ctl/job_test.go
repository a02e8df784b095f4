package ctl

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// findJob finds a job that the test serves.
func findJob(t *testing.T, name string) *Job {
	t.Helper()
	j, err := Find(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestFind(t *testing.T) {
	job := testJob(t)
	serveStatus(t, job, 0, func() spec.Status { return spec.Status{Job: job} })
	if got := findJob(t, job[:len(job)-1]).Name(); got != job {
		t.Errorf("by its beginning: %q, want %q", got, job)
	}
	if _, err := Find(t.Context(), job+"-not"); !errors.Is(err, ErrNoJob) {
		t.Errorf("no job: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Find(ctx, job); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of ctx: %v", err)
	}
}

// A job whose peers do not answer is found, and its status is an error with the cause.
func TestStatusNotAnswered(t *testing.T) {
	job := testJob(t)
	l, err := Listen(SocketName{job, 0, os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	var peer sync.WaitGroup
	peer.Go(func() { hangUp(l, 0, nil) })
	_, err = findJob(t, job).Status(t.Context())
	if err == nil || errors.Is(err, ErrNoJob) || !strings.Contains(err.Error(), job+": none of its peers on this host answers") {
		t.Errorf("got %v", err)
	}
	_ = l.Close()
	peer.Wait()
}

func TestJobsOfSeveral(t *testing.T) {
	for _, suffix := range []string{"b", "a"} {
		job := testJob(t) + suffix
		serveStatus(t, job, 0, func() spec.Status {
			return spec.Status{Job: job, Members: []spec.MemberStatus{{ID: "a", State: spec.StateJoining}}}
		})
	}
	all, err := Jobs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range all {
		if strings.HasPrefix(s.Job, testJob(t)) {
			names = append(names, s.Job[len(s.Job)-1:])
		}
	}
	if strings.Join(names, "") != "ab" {
		t.Errorf("jobs %v", names)
	}
	if _, err := Find(t.Context(), ""); !errors.Is(err, ErrWhichJob) || !strings.Contains(err.Error(), "name one of") {
		t.Errorf("without a name among several: %v", err)
	}
}

// serveJob serves peer 0 of a job with testServices. launcher is the process ID of its launcher.
func serveJob(t *testing.T, job string, launcher int) {
	t.Helper()
	s := testServices()
	s.Status = func() spec.Status {
		return spec.Status{Job: job, Members: []spec.MemberStatus{{ID: "a", Launcher: launcher, PID: os.Getpid(), State: spec.StateRunning}}}
	}
	c, err := Serve(SocketName{job, 0, os.Getpid()}, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
}

func TestScaleAndTicketOverControl(t *testing.T) {
	job := testJob(t)
	serveJob(t, job, 77)
	found := findJob(t, job)
	if text, err := found.Scale(t.Context(), 3, 0); text != "3" || err != nil {
		t.Errorf("scale: %q, %v", text, err)
	}
	if text, err := found.ScaleHost(t.Context(), spec.Host{Name: "a"}, 0); text != "0 on a" || err != nil {
		t.Errorf("scale a host: %q, %v", text, err)
	}
	for _, h := range []spec.Host{{Name: "a", Slots: -1}, {Name: "a", Slots: spec.MaxPeers + 1}, {Slots: 1}, {Name: "-x", Slots: 1}} {
		if _, err := found.ScaleHost(t.Context(), h, 0); !errors.Is(err, spec.ErrOptions) {
			t.Errorf("scale host %+v: %v", h, err)
		}
	}
	if _, err := found.Scale(t.Context(), 3, 78); err == nil || !strings.Contains(err.Error(), "[77]") {
		t.Errorf("scale by another launcher: %v", err)
	}
	if _, err := found.Scale(t.Context(), 0, 0); !errors.Is(err, spec.ErrOptions) {
		t.Errorf("scale to none: %v", err)
	}
	if k, err := found.Invite(t.Context(), spec.Invitation{Valid: time.Hour}); k.Text != "1h0m0s false" || err != nil {
		t.Errorf("ticket: %+v, %v", k, err)
	}
	if _, err := found.Invite(t.Context(), spec.Invitation{}); !errors.Is(err, spec.ErrOptions) {
		t.Errorf("ticket that never holds: %v", err)
	}
}

func TestChooseJob(t *testing.T) {
	for _, c := range []struct {
		job     string
		running []string
		want    string // the job, or part of the error
	}{
		{"a", []string{"a", "b"}, "a"},
		{"", []string{"a"}, "a"},
		{"", []string{"a", "b"}, "name one of a, b"},
		{"", nil, "none is running"},
		{"c", nil, "c; none is running"},
		{"c", []string{"a", "b"}, "c; running: a, b"},
		{"mn", []string{"mnist-abcde", "sweep"}, "mnist-abcde"},
		{"mnist", []string{"mnist-abcde", "mnist"}, "mnist"}, // a full name takes precedence over beginnings
		{"mnist-", []string{"mnist-abcde", "mnist-bcdef", "x"}, "could be meant by mnist-: name one of mnist-abcde, mnist-bcdef"},
		{"abcde", []string{"mnist-abcde"}, "abcde; running: mnist-abcde"}, // the end of a name does not find it
		{"mnist-abcdef", []string{"mnist-abcde"}, "mnist-abcdef; running"},
	} {
		got, err := chooseJob(c.job, c.running)
		if err == nil && got != c.want || err != nil && !strings.Contains(err.Error(), c.want) ||
			errors.Is(err, ErrWhichJob) != strings.Contains(c.want, "name one of") || err != nil && errors.Is(err, ErrNoJob) == errors.Is(err, ErrWhichJob) {
			t.Errorf("%q among %q: %q, %v, want %q", c.job, c.running, got, err, c.want)
		}
	}
}

// A chosen name is in the list and begins as requested, and every running job can be chosen.
func TestChooseJobProperty(t *testing.T) {
	name := rapid.StringMatching("[ab]{1,3}")
	rapid.Check(t, func(t *rapid.T) {
		running := rapid.SliceOfDistinct(name, rapid.ID).Draw(t, "running")
		job := rapid.OneOf(name, rapid.Just("")).Draw(t, "job")
		got, err := chooseJob(job, running)
		fits := 0
		for _, n := range running {
			if strings.HasPrefix(n, job) {
				fits++
			}
		}
		whole := slices.Contains(running, job)
		switch {
		case err == nil && !(slices.Contains(running, got) && strings.HasPrefix(got, job)):
			t.Fatalf("%q among %q: %q", job, running, got)
		case whole && got != job:
			t.Fatalf("%q among %q: %q, %v", job, running, got, err)
		case (err == nil) != (whole || fits == 1):
			t.Fatalf("%q among %q: %q, %v", job, running, got, err)
		}
	})
}

func TestChooseLauncher(t *testing.T) {
	with := func(pids ...int) spec.Status {
		var s spec.Status
		for _, pid := range pids {
			s.Members = append(s.Members, spec.MemberStatus{Launcher: pid})
		}
		return s
	}
	for _, c := range []struct {
		s    spec.Status
		want int
		got  int
		err  string
	}{
		{with(5, 5, 0), 0, 5, ""},
		{with(5, 6), 6, 6, ""},
		{with(6, 5, 6), 0, 0, "[5 6]"},
		{with(5), 7, 0, "process 7"},
		{with(0), 0, 0, "not joined yet"},
	} {
		got, err := chooseLauncher(c.s, c.want)
		if got != c.got || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v, %d: got %d, %v", c.s, c.want, got, err)
		}
	}
}

// watched is a launcher that knows its job.
type watched timeline.Snapshot

// Answer implements Responder.
func (w watched) Answer(context.Context, wire.Request) (wire.Reply, error) {
	s := timeline.Snapshot(w)
	return wire.Reply{Snapshot: &s}, nil
}

// End implements Responder.
func (w watched) End() {}

// The launchers of a host together know the job, and the status has their goodput. Without a launcher the
// status has none, and a snapshot is an error.
func TestSnapshot(t *testing.T) {
	job := testJob(t)
	serveStatus(t, job, 0, func() spec.Status { return spec.Status{Job: job, Step: 5} })
	if _, err := findJob(t, job).Snapshot(t.Context()); !errors.Is(err, errNoLauncher) {
		t.Errorf("without a launcher: %v", err)
	}
	if s, err := findJob(t, job).Status(t.Context()); err != nil || s.Goodput != nil {
		t.Errorf("without a launcher: %+v, %v", s.Goodput, err)
	}
	for i, pid := range []int{0, os.Getpid()} {
		p := timeline.Peer{ID: string(rune('a' + i)), Index: i, Heard: true, Begin: time.Unix(1e9, 0), End: time.Unix(1e9+10, 0)}
		p.Uses[timeline.Useful], p.Uses[timeline.Wait] = 8*time.Second, 2*time.Second
		p.WaitedFor.Computing = time.Duration(i) * time.Second
		c, err := Serve(SocketName{Job: job, Index: LauncherIndex, PID: pid}, watched{Peers: []timeline.Peer{p}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	s, err := findJob(t, job).Status(t.Context())
	if err != nil || s.Goodput == nil || s.Goodput.Line() != "goodput 80 % of 2 peers' 10s: waiting 20 %" || len(s.Stragglers) != 1 || s.Stragglers[0].Index != 1 {
		t.Errorf("got %+v, %+v, %v", s.Goodput, s.Stragglers, err)
	}
}
