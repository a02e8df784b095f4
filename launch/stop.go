package launch

import (
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
	// stopPeriod is how long Stop waits for the peers: as long as a launcher does.
	stopPeriod = defaultGrace
	// leavePeriod is how long the peers may take to leave the group in good order.
	leavePeriod = stopPeriod / 2
	// stopPoll is the time between two looks at which peers are left.
	stopPoll = 20 * time.Millisecond
)

// Stopped says what Job.Stop has done.
type Stopped struct {
	Job   string
	Peers int           // that were found and asked to end
	Took  time.Duration // from the first request to the end of the last peer
}

// Stop ends the job as SIGTERM ends it: each peer on this host is asked to send itself that
// signal, and does so when all have answered. Peers that have not left the group 5 s later are
// asked once more, and then end at once. Stop returns when all their control sockets are gone.
// If some are left after 10 s, or at the end of ctx, it returns an error that names these
// peers; they have been asked all the same.
//
// A launcher that runs sees its peers end and ends with the status that theirs give. A process
// that has not called Init has no control socket and is not asked.
func (j *Job) Stop(ctx context.Context) (Stopped, error) {
	if _, err := j.peers(); err != nil {
		return Stopped{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, stopPeriod, fmt.Errorf("waited %v", stopPeriod))
	defer cancel()
	s := stopping{job: j, asked: map[socketName]error{}}
	begun := time.Now()
	err := s.run(ctx)
	return Stopped{Job: j.name, Peers: len(s.asked), Took: time.Since(begun)}, err
}

// errAgain: a peer that has been asked is to be asked again.
var errAgain = errors.New("has been asked, and still runs")

// stopping is a Stop in progress.
type stopping struct {
	job   *Job
	asked map[socketName]error // who was asked, and why that failed
}

// run asks and looks until no peer is left. It looks for new ones as well: a job may be
// stopped in the middle of its start.
func (s *stopping) run(ctx context.Context) error {
	tick := time.NewTicker(stopPoll)
	defer tick.Stop()
	again := time.NewTimer(leavePeriod)
	defer again.Stop()
	for {
		left, err := s.left()
		if err != nil || len(left) == 0 {
			return err
		}
		s.ask(ctx, left)
		select {
		case <-tick.C:
		case <-again.C:
			for _, n := range left {
				s.asked[n] = errAgain
			}
		case <-ctx.Done():
			return s.leftError(context.Cause(ctx))
		}
	}
}

// left returns the job's peers that have a control socket.
func (s *stopping) left() ([]socketName, error) {
	names, err := s.job.peers()
	if errors.Is(err, ErrNoJob) {
		return nil, nil
	}
	return names, err
}

// ask asks those that have not agreed yet, all at once. The connections stay open until
// all have answered, which is when the peers end.
func (s *stopping) ask(ctx context.Context, names []socketName) {
	conns, errs := make([]net.Conn, len(names)), make([]error, len(names))
	var work sync.WaitGroup
	for i, n := range names {
		if err, ok := s.asked[n]; !ok || err != nil {
			work.Go(func() { conns[i], _, errs[i] = open(ctx, n, request{Request: "stop"}) })
		}
	}
	work.Wait()
	for i, n := range names {
		s.asked[n] = errs[i]
		if conns[i] != nil {
			_ = conns[i].Close()
		}
	}
}

// leftError names the peers that still run, or returns nil if the last has just ended.
func (s *stopping) leftError(cause error) error {
	names, err := s.left()
	if err != nil || len(names) == 0 {
		return err
	}
	var left []string
	for _, n := range names {
		text := fmt.Sprintf("peer %d (pid %d)", n.index, n.pid)
		if err := s.asked[n]; err != nil {
			text += fmt.Sprintf(", which did not take the request: %v", errors.Unwrap(err))
		}
		left = append(left, text)
	}
	return fmt.Errorf("launch: stop job %s: %d of %d peers still run: %s: %w",
		s.job.name, len(names), len(s.asked), strings.Join(left, "; "), cause)
}

// terminate ends this process as a SIGTERM from outside does: a program that handles the
// signal ends in its own way.
func terminate() { _ = syscall.Kill(os.Getpid(), syscall.SIGTERM) }
