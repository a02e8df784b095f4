package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// endPeriod is how long Stop waits for the peers after it has asked them again.
	endPeriod = 5 * time.Second
	// stopPoll is the interval at which Stop checks which peers are left.
	stopPoll = 20 * time.Millisecond
)

// Stopped describes the effect of Job.Stop.
type Stopped struct {
	Job   string
	Peers int           // number of peers that were found and asked to end
	Took  time.Duration // from the first request to the end of the last peer
}

// Stop ends the job as SIGTERM does: it asks each peer on this host to send SIGTERM to itself,
// which the peers do when all have answered. Peers that have not left the group after the grace
// period of the job (Options.Grace) are asked again, and then end at once. Stop returns when all
// their control sockets are gone. If some peers are left 5 s later, or at the end of ctx, it returns
// an error that names these peers. They have been asked to end.
//
// A running launcher sees its peers end, and ends with the status that follows from their statuses.
// A process that has not called Init has no control socket and is not asked.
func (j *Job) Stop(ctx context.Context) (Stopped, error) {
	if _, err := j.peers(); err != nil {
		return Stopped{}, err
	}
	s := stopping{job: j, asked: map[socketName]error{}}
	begun := time.Now()
	err := s.run(ctx)
	return Stopped{Job: j.name, Peers: len(s.asked), Took: time.Since(begun)}, err
}

// errAgain marks a peer that has to be asked again.
var errAgain = errors.New("still runs after the request")

// stopping is a Stop in progress.
type stopping struct {
	job   *Job
	asked map[socketName]error // peers that were asked, with the error of the request
	// grace is the longest grace period that a peer has named; 0 before the first answer.
	grace time.Duration
	again bool // the peers that are left have been asked again
}

// overdue returns what is due when the first request was made some time ago: to ask the remaining
// peers again, or to give them up.
func (s *stopping) overdue(since time.Duration) (again, giveUp bool) {
	grace := cmp.Or(s.grace, defaultGrace)
	return since > grace && !s.again, since > grace+endPeriod
}

// run asks peers until none is left. It asks new peers as well, because a job may be stopped
// during its start.
func (s *stopping) run(ctx context.Context) error {
	tick := time.NewTicker(stopPoll)
	defer tick.Stop()
	begun := time.Now()
	for {
		left, err := s.left()
		if err != nil || len(left) == 0 {
			return err
		}
		// A second SIGTERM ends a peer at once, so a peer that hangs while it leaves ends, too.
		again, giveUp := s.overdue(time.Since(begun))
		if giveUp {
			return s.leftError(fmt.Errorf("waited %v", time.Since(begun).Round(time.Second)))
		}
		for _, n := range left {
			if again {
				s.again, s.asked[n] = true, errAgain
			}
		}
		s.ask(ctx, left)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return s.leftError(context.Cause(ctx))
		}
	}
}

// left returns the control sockets of the remaining peers.
func (s *stopping) left() ([]socketName, error) {
	names, err := s.job.peers()
	if errors.Is(err, ErrNoJob) {
		return nil, nil
	}
	return names, err
}

// ask asks all peers that have not agreed yet, concurrently. The connections stay open until all
// peers have answered.
func (s *stopping) ask(ctx context.Context, names []socketName) {
	// A peer ends when its connection is closed. So the connections are closed after the last
	// answer: otherwise a peer could see another peer leave before it gets the request itself.
	conns, replies, errs := make([]net.Conn, len(names)), make([]reply, len(names)), make([]error, len(names))
	var work sync.WaitGroup
	for i, n := range names {
		if err, ok := s.asked[n]; !ok || err != nil {
			work.Go(func() { conns[i], replies[i], errs[i] = open(ctx, n, request{Request: "stop"}) })
		}
	}
	work.Wait()
	for i, n := range names {
		s.asked[n], s.grace = errs[i], max(s.grace, replies[i].Grace)
		if conns[i] != nil {
			_ = conns[i].Close()
		}
	}
}

// leftError returns an error that names the remaining peers, or nil if the last one has just
// ended.
func (s *stopping) leftError(cause error) error {
	names, err := s.left()
	if err != nil || len(names) == 0 {
		return err
	}
	var left []string
	for _, n := range names {
		text := fmt.Sprintf("peer %d (pid %d)", n.index, n.pid)
		if err := s.asked[n]; err != nil {
			text += fmt.Sprintf(", which did not accept the request: %v", errors.Unwrap(err))
		}
		left = append(left, text)
	}
	return fmt.Errorf("launch: stop job %s: %d of %d peers still run: %s: %w",
		s.job.name, len(names), len(s.asked), strings.Join(left, "; "), cause)
}

// terminate sends SIGTERM to this process, so that a program that handles the signal ends in its
// own way.
func terminate() { _ = syscall.Kill(os.Getpid(), syscall.SIGTERM) }
