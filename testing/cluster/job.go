package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/testing/simnet"
)

// fanOut is a sink that passes each event to several sinks.
type fanOut []event.Sink

// Emit implements event.Sink.
func (f fanOut) Emit(e event.Event) {
	for _, s := range f {
		s.Emit(e)
	}
}

// Job is an elastic group whose members join and die during a test. The members are goroutines of one process, on a simulated
// network. In a synctest bubble time is virtual:
//
//	synctest.Test(t, func(t *testing.T) {
//		job := cluster.Start(t, 3, simnet.New(simnet.Config{}), train)
//		time.AfterFunc(time.Second, func() { job.Kill(1) })
//		time.AfterFunc(2*time.Second, func() { job.Join() })
//		job.Wait()
//	})
type Job struct {
	Network *simnet.Network // for faults other than the death of a member

	t       testing.TB
	sink    event.Sink
	f       func(ctx context.Context, g *elastic.Group) error
	ctx     context.Context
	members sync.WaitGroup

	mu   sync.Mutex
	all  []elastic.Member // by index
	errs []error
}

// Start calls f with each of the n members of a new group. The job owns the network, which Wait closes. The sinks get the events
// of all members.
func Start(t testing.TB, n int, network *simnet.Network, f func(ctx context.Context, g *elastic.Group) error, sinks ...event.Sink) *Job {
	t.Helper()
	j := &Job{Network: network, t: t, sink: network.Sink(fanOut(sinks)), f: f, ctx: t.Context()}
	for range n {
		j.add()
	}
	first := j.known()
	for _, m := range first {
		j.run(elastic.Config{Endpoint: network.Endpoint(m), Peers: first})
	}
	return j
}

// Join starts another member, which joins the running group. It returns the member's index.
func (j *Job) Join() int {
	m := j.add()
	j.run(elastic.Config{Endpoint: j.Network.Endpoint(m), Contacts: j.known})
	return m.Index
}

// Kill ends the member with the given index, as SIGKILL ends a process.
func (j *Job) Kill(index int) { j.Network.Kill(j.known()[index].ID) }

// Wait waits until f has returned at all members, and fails the test unless every result is nil. The results of members that were
// killed, by Kill or by the network, do not count.
func (j *Job) Wait() {
	j.t.Helper()
	j.members.Wait()
	if err := errors.Join(append(j.errs, j.Network.Close())...); err != nil {
		j.t.Fatal(err)
	}
}

// add creates a member.
func (j *Job) add() elastic.Member {
	j.mu.Lock()
	defer j.mu.Unlock()
	i := len(j.all)
	m := elastic.Member{ID: elastic.ID(fmt.Sprintf("member-%d", i)), Index: i}
	j.all = append(j.all, m)
	return m
}

// known returns all present and former members, by index.
func (j *Job) known() []elastic.Member {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]elastic.Member(nil), j.all...)
}

// run runs the function of one member.
func (j *Job) run(cfg elastic.Config) {
	cfg.Sink = j.sink
	gone := j.Network.Gone(cfg.Self.ID)
	ctx, cancel := context.WithCancel(j.ctx)
	// Kill only cuts a member off the network. Cancelling its context ends its goroutines, which
	// might otherwise wait for ever for other members.
	j.members.Go(func() {
		select {
		case <-gone:
			cancel()
		case <-ctx.Done():
		}
	})
	j.members.Go(func() {
		defer cancel()
		err := j.member(ctx, cfg, gone)
		j.mu.Lock()
		defer j.mu.Unlock()
		if err != nil {
			j.errs = append(j.errs, fmt.Errorf("member %d: %w", cfg.Self.Index, err))
		}
	})
}

// member joins, calls f and leaves. It returns nil for a member that was killed.
func (j *Job) member(ctx context.Context, cfg elastic.Config, gone <-chan struct{}) error {
	g, err := elastic.Join(ctx, cfg)
	if err == nil {
		err = j.f(ctx, g)
	}
	killed := false // read before Close, because Close also takes the member off the network
	select {
	case <-gone:
		killed = true
	default:
	}
	if g != nil {
		err = errors.Join(err, g.Close()) // gives an error to members that wait for this member
	}
	if killed {
		return nil
	}
	return err
}
