package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/elastic/wish"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/internal/pause"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// Errors of Find and of the methods of a Job. Compare them with errors.Is.
var (
	// ErrNoJob reports that no job has the name, that there is no job at all, or that the job has
	// ended.
	ErrNoJob = errors.New("no such job")
	// ErrWhichJob reports that a name fits several jobs.
	ErrWhichJob = errors.New("several jobs could be meant")
)

// Job is a job of this user with control sockets on this host. Its methods, except AskTicket, are those of
// launch.Job, which explains them.
type Job struct{ name string }

// Find is launch.Find.
func Find(ctx context.Context, name string) (*Job, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("launch: find job: %w", context.Cause(ctx))
	}
	running, err := Names()
	if err != nil {
		return nil, err
	}
	if name, err = chooseJob(name, running); err != nil {
		return nil, err
	}
	return &Job{name: name}, nil
}

// Names is launch.JobNames.
func Names() ([]string, error) {
	sockets, err := ListSockets()
	if err != nil {
		return nil, fmt.Errorf("launch: list jobs: %w", err)
	}
	// A job has a socket for each peer: equal names count once.
	var running []string
	for _, n := range sockets {
		running = append(running, n.Job)
	}
	slices.Sort(running)
	return slices.Compact(running), nil
}

// Of returns the job with a full name, also if it has ended.
func Of(name string) *Job { return &Job{name: name} }

// Name returns the full name of the job.
func (j *Job) Name() string { return j.name }

// Status returns the state of the job. It combines the reports of the peers that answer within 2 s.
func (j *Job) Status(ctx context.Context) (spec.Status, error) { return j.status(ctx, false) }

// Paths is Status with the paths of the data from each peer on this host to the other peers.
func (j *Job) Paths(ctx context.Context) (spec.Status, error) { return j.status(ctx, true) }

// status is Status or, with paths set, Paths.
func (j *Job) status(ctx context.Context, paths bool) (spec.Status, error) {
	peers, err := j.peers()
	if err != nil {
		return spec.Status{}, err
	}
	// One answer is enough: peers that do not answer appear with the values that other peers
	// report.
	reports, err := askStatus(ctx, peers, paths)
	if len(reports) == 0 {
		return spec.Status{}, fmt.Errorf("launch: job %s: none of its peers on this host answers: %w; elrun stop ends them or names their processes", j.name, cmp.Or(err, errNoStatus))
	}
	s := MergeStatus(reports)
	complete(ctx, &s)
	return s, nil
}

// complete adds to a status what the launchers on this host know of the job.
func complete(ctx context.Context, s *spec.Status) {
	if m, err := Of(s.Job).Snapshot(ctx); err == nil { // without an elrun nobody knows
		s.Goodput, s.Stragglers, s.Log = &m.Goodput, m.Stragglers(), m.Job.Log
		fill(s.Members, m.Peers)
	}
}

// fill completes members of other hosts by what their launchers know of them.
func fill(members []spec.MemberStatus, known []timeline.Peer) {
	for i := range members {
		m := &members[i]
		at := slices.IndexFunc(known, func(p timeline.Peer) bool { return p.ID == m.ID && p.Heard })
		if at < 0 || m.State != spec.StateUnknown {
			continue
		}
		p := known[at]
		m.Index, m.State, m.Share, m.Speed, m.Path = p.Index, p.State, p.Share, p.SamplesPerS, p.Path
		l := p.Last
		m.ComputeMS, m.CommMS, m.StepMS, m.PredictedMS = l.ComputeMS, l.WaitMS+l.ReduceMS+l.CommitMS, l.StepMS, l.PredictedMS
	}
}

// Snapshot returns what the launchers on this host know of the job.
func (j *Job) Snapshot(ctx context.Context) (timeline.Snapshot, error) {
	return (&watch{job: j.name}).next(ctx)
}

// Watch is launch.Job.Watch.
func (j *Job) Watch(ctx context.Context) iter.Seq2[timeline.Snapshot, error] {
	return func(yield func(timeline.Snapshot, error) bool) {
		w := watch{job: j.name}
		tick := time.NewTicker(watchPeriod)
		defer tick.Stop()
		for {
			s, err := w.next(ctx)
			if !yield(s, err) || err != nil {
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				yield(timeline.Snapshot{}, fmt.Errorf("launch: watch job %s: %w", j.name, context.Cause(ctx)))
				return
			}
		}
	}
}

// Events is launch.Job.Events.
func (j *Job) Events(ctx context.Context) iter.Seq2[event.Event, error] {
	return func(yield func(event.Event, error) bool) {
		l := listener{job: j.name, next: make(map[SocketName]int64)}
		if err := l.begin(ctx, yield); err != nil {
			return
		}
		tick := time.NewTicker(eventsPeriod)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				yield(event.Event{}, fmt.Errorf("launch: events of job %s: %w", j.name, context.Cause(ctx)))
				return
			}
			events, err := l.hear(ctx)
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
			if err != nil {
				yield(event.Event{}, err)
				return
			}
		}
	}
}

// errNoStatus reports answers that are none to the question.
var errNoStatus = errors.New("no status in the answer")

// errNoLauncher reports that no launcher of a job runs here.
var errNoLauncher = errors.New("no elrun of it runs on this host")

// Scale changes the number of peers of a launcher.
func (j *Job) Scale(ctx context.Context, n, launcher int) (string, error) {
	if n < 1 || n > spec.MaxPeers {
		return "", fmt.Errorf("launch: %w: %d peers, want 1 to %d", spec.ErrOptions, n, spec.MaxPeers)
	}
	return j.scale(ctx, wire.Request{Request: "scale", Peers: n}, launcher)
}

// ScaleHost changes the number of peers on a host of a launcher.
func (j *Job) ScaleHost(ctx context.Context, h spec.Host, launcher int) (string, error) {
	if h.Slots < 0 || h.Slots > spec.MaxPeers {
		return "", fmt.Errorf("launch: %w: %d peers on host %s, want 0 to %d", spec.ErrOptions, h.Slots, h.Name, spec.MaxPeers)
	}
	if _, err := spec.AddHost(nil, h); err != nil {
		return "", fmt.Errorf("launch: %w: %w", spec.ErrOptions, err)
	}
	return j.scale(ctx, wire.Request{Request: "scale", Peers: h.Slots, Host: h.Name}, launcher)
}

// scale sends a scale request to a launcher.
func (j *Job) scale(ctx context.Context, what wire.Request, launcher int) (string, error) {
	s, err := j.Status(ctx)
	if err != nil {
		return "", err
	}
	if launcher, err = chooseLauncher(s, launcher); err != nil {
		return "", fmt.Errorf("launch: scale job %s: %w", j.name, err)
	}
	// Only the peers of that launcher have a connection to the launcher, so send the request to one
	// of these peers.
	local := map[int]bool{}
	for _, m := range s.Members {
		if m.Launcher == launcher {
			local[m.PID] = true
		}
	}
	answer, err := j.ask(ctx, what, func(n SocketName) bool { return local[n.PID] })
	if err != nil {
		return "", err
	}
	return answer.Scaling, nil
}

// Invite returns a new ticket.
func (j *Job) Invite(ctx context.Context, i spec.Invitation) (spec.Ticket, error) {
	switch {
	case i.Valid < wire.MinValid || i.Valid > wire.MaxValid:
		return spec.Ticket{}, fmt.Errorf("launch: %w: ticket valid for %v, want %v to %v", spec.ErrOptions, i.Valid, wire.MinValid, wire.MaxValid)
	case i.Uses < 0:
		return spec.Ticket{}, fmt.Errorf("launch: %w: ticket for %d peers, want 0 (any number) or more", spec.ErrOptions, i.Uses)
	}
	return j.AskTicket(ctx, wire.Request{Request: "ticket", ValidMS: i.Valid.Milliseconds(), Uses: uint64(i.Uses)})
}

// Refresh returns a ticket with fresh addresses.
func (j *Job) Refresh(ctx context.Context, ticket string) (spec.Ticket, error) {
	return j.AskTicket(ctx, wire.Request{Request: "refresh", Ticket: ticket})
}

// Revoke makes a ticket, or with "" all tickets, void.
func (j *Job) Revoke(ctx context.Context, ticket string) (string, error) {
	answer, err := j.ask(ctx, wire.Request{Request: "revoke", Ticket: ticket}, func(SocketName) bool { return true })
	return answer.Done, err
}

// Kick puts a peer out of the job.
func (j *Job) Kick(ctx context.Context, peer string) (string, error) {
	answer, err := j.ask(ctx, wire.Request{Request: "kick", Peer: peer}, func(SocketName) bool { return true })
	return answer.Done, err
}

const (
	// checkpointPoll is the pause between two questions whether a checkpoint is written. A peer takes about a second for an answer.
	checkpointPoll = 100 * time.Millisecond
	// checkpointPatience is how long no peer may take a wish, for example because the peer of rank 0 has just died.
	checkpointPatience = 20 * time.Second
)

// Checkpoint is launch.Job.Checkpoint. It asks again and again, so that a wish outlives the peer that writes, and the one that was
// asked.
func (j *Job) Checkpoint(ctx context.Context, wait bool) (out wish.Saved, err error) {
	taken := time.Now()
	for turn := 0; ; {
		peers, err := j.peers()
		switch {
		case errors.Is(err, ErrNoJob) && out.Since > 0:
			return out, fmt.Errorf("launch: %w: %s has ended before it confirmed a checkpoint: its event log and its folder show the last one", ErrNoJob, j.name)
		case err != nil:
			return out, err
		}
		answer, err := Ask(ctx, peers[turn%len(peers)], wire.Request{Request: "checkpoint", Since: out.Since})
		if err == nil && answer.Saved == nil {
			err = errors.New("no checkpoint in the answer")
		}
		switch {
		case err == nil:
			out, taken = *answer.Saved, time.Now()
		case time.Since(taken) > checkpointPatience:
			return out, fmt.Errorf("launch: checkpoint of job %s: no peer takes the wish; elrun status shows for whom they wait: %w", j.name, err)
		default:
			turn++ // another peer may know more
		}
		switch {
		case out.Failed != "":
			return out, fmt.Errorf("launch: checkpoint of job %s: %s", j.name, out.Failed)
		case out.Path != "" || !wait && out.Since > 0:
			return out, nil
		case pause.For(ctx, checkpointPoll) != nil && out.Since > 0:
			return out, fmt.Errorf("launch: checkpoint of job %s: none is written yet, but the wish stands; elrun doctor %[1]s tells why a job waits: %w", j.name, context.Cause(ctx))
		case ctx.Err() != nil:
			return out, fmt.Errorf("launch: checkpoint of job %s: %w", j.name, context.Cause(ctx))
		}
	}
}

// AskTicket sends a request whose answer is a ticket.
func (j *Job) AskTicket(ctx context.Context, r wire.Request) (spec.Ticket, error) {
	answer, err := j.ask(ctx, r, func(SocketName) bool { return true })
	if err != nil {
		return spec.Ticket{}, err
	}
	if answer.Ticket == nil {
		return spec.Ticket{}, fmt.Errorf("launch: ask job %s for a ticket: no ticket in the answer", j.name)
	}
	return *answer.Ticket, nil
}

// ask sends a request to the peers for which the function fits returns true, one after the other,
// until one answers without an error. It returns the last error.
func (j *Job) ask(ctx context.Context, r wire.Request, fits func(SocketName) bool) (wire.Reply, error) {
	peers, err := j.peers()
	if err != nil {
		return wire.Reply{}, err
	}
	// If no peer fits or answers, the error is that the job has ended.
	last := j.ended()
	for _, n := range peers {
		if !fits(n) {
			continue
		}
		answer, err := Ask(ctx, n, r)
		if err == nil {
			return answer, nil
		}
		last = err
	}
	return wire.Reply{}, last
}

// peers returns the control sockets of the job's peers, at least one.
func (j *Job) peers() ([]SocketName, error) {
	all, err := ListSockets()
	if err != nil {
		return nil, fmt.Errorf("launch: list the peers of job %s: %w", j.name, err)
	}
	all = slices.DeleteFunc(all, func(n SocketName) bool { return n.Job != j.name })
	peers := slices.DeleteFunc(slices.Clone(all), SocketName.isLauncher)
	switch {
	case len(all) == 0:
		return nil, j.ended()
	case len(peers) == 0:
		return nil, fmt.Errorf("launch: %w: no peer of %s has called Init yet: try again later", ErrNoJob, j.name)
	}
	return peers, nil
}

// ended returns the error for a job whose peers on this host have all ended.
func (j *Job) ended() error { return fmt.Errorf("launch: %w: %s has no peer left", ErrNoJob, j.name) }

// Jobs is launch.Jobs.
func Jobs(ctx context.Context) ([]spec.Status, error) {
	peers, err := List()
	if err != nil {
		return nil, fmt.Errorf("launch: list jobs: %w", err)
	}
	reports, _ := askStatus(ctx, peers, false)
	// Each peer reports its own figures, and one job's reports are merged below.
	byJob := map[string][]spec.Status{}
	for _, r := range reports {
		byJob[r.Job] = append(byJob[r.Job], r)
	}
	out := []spec.Status{}
	for _, reports := range byJob {
		out = append(out, MergeStatus(reports))
	}
	var work sync.WaitGroup
	for i := range out {
		work.Go(func() { complete(ctx, &out[i]) })
	}
	work.Wait()
	slices.SortFunc(out, func(a, b spec.Status) int { return cmp.Compare(a.Job, b.Job) })
	return out, nil
}

// askStatus asks all peers at once for their reports. It returns the reports, and the first error
// of the other peers.
func askStatus(ctx context.Context, peers []SocketName, paths bool) ([]spec.Status, error) {
	replies, err := askAll(peers, func(n SocketName) (wire.Reply, error) {
		return Ask(ctx, n, wire.Request{Request: "status", Paths: paths})
	})
	var reports []spec.Status
	for i, r := range replies {
		if r.Status != nil {
			r.Status.Job = peers[i].Job // the address of the socket has the right name
			reports = append(reports, *r.Status)
		}
	}
	return reports, err
}

// Answer is the answer of a peer of a job to a request on its control socket.
type Answer struct {
	At    SocketName
	Reply wire.Reply
	Err   error // the peer has not answered
}

// Records asks the peers of the job on this host, and those of its launchers, for the records of their calls, all at once. It
// waits for a peer for ControlPeriod at most.
func (j *Job) Records(ctx context.Context) ([]Answer, error) {
	peers, err := j.peers()
	if err != nil {
		return nil, err
	}
	out := make([]Answer, len(peers))
	var work sync.WaitGroup
	for i, n := range peers {
		work.Go(func() {
			r, err := Ask(ctx, n, wire.Request{Request: "record"})
			if err == nil && r.Record == nil {
				err = errors.New("no record in the answer")
			}
			out[i] = Answer{n, r, err}
		})
	}
	work.Wait()
	return out, nil
}

// Remains returns the record of a peer that has failed, by its short ID, nil if no launcher on this host has it.
func (j *Job) Remains(ctx context.Context, id string) *flight.Record {
	all, _ := ListSockets() // without the list no launcher is known
	all = slices.DeleteFunc(all, func(n SocketName) bool { return n.Job != j.name || !n.isLauncher() })
	replies, _ := askAll(all, func(n SocketName) (wire.Reply, error) { return Ask(ctx, n, wire.Request{Request: "record", Peer: id}) })
	for _, r := range replies {
		if r.Record != nil {
			return r.Record
		}
	}
	return nil
}

// askAll calls ask for several control sockets at once. It returns the reply of each, empty where there is none, and the
// first error.
func askAll(at []SocketName, ask func(SocketName) (wire.Reply, error)) ([]wire.Reply, error) {
	replies, errs := make([]wire.Reply, len(at)), make([]error, len(at))
	var work sync.WaitGroup
	for i, n := range at {
		work.Go(func() { replies[i], errs[i] = ask(n) })
	}
	work.Wait()
	return replies, cmp.Or(errs...)
}

// chooseJob returns the name in running that equals job, or else the only name that begins with
// job. Every name begins with "".
func chooseJob(job string, running []string) (string, error) {
	var fit []string
	for _, name := range running {
		if strings.HasPrefix(name, job) {
			fit = append(fit, name)
		}
	}
	switch {
	// If job is the full name of one job and the beginning of a longer name, the full name is
	// chosen.
	case slices.Contains(running, job):
		return job, nil
	case len(fit) == 1:
		return fit[0], nil
	case len(running) == 0 && job == "":
		return "", fmt.Errorf("%w: none is running on this host", ErrNoJob)
	case len(running) == 0:
		return "", fmt.Errorf("%w: %s; none is running on this host", ErrNoJob, job)
	case job == "":
		return "", fmt.Errorf("%w: name one of %s", ErrWhichJob, strings.Join(fit, ", "))
	case len(fit) > 1:
		return "", fmt.Errorf("%w by %s: name one of %s", ErrWhichJob, job, strings.Join(fit, ", "))
	}
	return "", fmt.Errorf("%w: %s; running: %s", ErrNoJob, job, strings.Join(running, ", "))
}

// chooseLauncher returns the process ID of the launcher to use: want, or the only one if want is
// 0.
func chooseLauncher(s spec.Status, want int) (int, error) {
	var all []int
	for _, m := range s.Members {
		if m.Launcher != 0 && !slices.Contains(all, m.Launcher) {
			all = append(all, m.Launcher)
		}
	}
	slices.Sort(all)
	switch {
	case want != 0 && slices.Contains(all, want):
		return want, nil
	case want != 0:
		return 0, fmt.Errorf("no peer here was started by process %d (process IDs of elrun: %v)", want, all)
	case len(all) == 1:
		return all[0], nil
	case len(all) == 0:
		return 0, errors.New("its peers have not joined yet: try again later")
	}
	return 0, fmt.Errorf("several elruns have peers here: choose one by --elrun with its process ID (%v)", all)
}
