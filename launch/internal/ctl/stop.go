package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

const (
	// endPeriod is how long Stop waits for the peers after it has asked them again.
	endPeriod = 5 * time.Second
	// stopPoll is the interval at which Stop checks which peers are left.
	stopPoll = 20 * time.Millisecond
)

// Stop ends the job on this host: it asks the launchers, and peers whose launcher does not answer.
func (j *Job) Stop(ctx context.Context) (spec.Stopped, error) {
	s := stopping{job: j, asked: map[SocketName]error{}, ending: map[int]bool{}, groups: map[int]bool{}}
	if left, err := s.left(); err != nil || len(left) == 0 {
		return spec.Stopped{}, cmp.Or(err, j.ended())
	}
	begun := time.Now()
	err := s.run(ctx)
	return spec.Stopped{Job: j.name, Peers: s.peers(), Took: time.Since(begun)}, err
}

// errAgain marks a peer or launcher that has to be asked again.
var errAgain = errors.New("still runs after the request")

// stopping is a Stop in progress.
type stopping struct {
	job    *Job
	asked  map[SocketName]error // sockets that were asked, with the error of the request
	ending map[int]bool         // process IDs of peers that a launcher asks
	groups map[int]bool         // the process groups of these peers
	// grace is the longest grace period that an answer has named; 0 before the first answer.
	grace time.Duration
	again bool // the peers that are left have been asked again
}

// peers returns the number of peers that were asked, by a launcher or directly.
func (s *stopping) peers() int {
	n := len(s.ending)
	for at := range s.asked {
		if !at.isLauncher() && !s.ending[at.PID] {
			n++
		}
	}
	return n
}

// overdue returns what is due when the first request was made some time ago: to ask the remaining
// peers again, or to give them up.
func (s *stopping) overdue(since time.Duration) (again, giveUp bool) {
	grace := cmp.Or(s.grace, spec.DefaultGrace)
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

// left returns the control sockets of the remaining peers and launchers. A launcher that has not
// accepted the request is left out if peers accepted it: it may be stopped, and ends when it goes on.
func (s *stopping) left() ([]SocketName, error) {
	all, err := ListSockets()
	if err != nil {
		return nil, fmt.Errorf("launch: list the peers of job %s: %w", s.job.name, err)
	}
	left := slices.DeleteFunc(all, func(n SocketName) bool { return n.Job != s.job.name })
	if s.peers() > 0 && !slices.ContainsFunc(left, func(n SocketName) bool { return !n.isLauncher() || s.asked[n] == nil }) {
		return nil, nil
	}
	return left, nil
}

// ask asks all launchers, and then the peers that no launcher asks, unless they have agreed
// already. The connections stay open until all have answered.
func (s *stopping) ask(ctx context.Context, names []SocketName) {
	// The request takes effect when its connection is closed. So the connections are closed after the
	// last answer: otherwise a peer could see another peer leave before it gets the request itself.
	var conns []net.Conn
	for _, launchers := range []bool{true, false} {
		due := slices.DeleteFunc(slices.Clone(names), func(n SocketName) bool { return n.isLauncher() != launchers || !s.isDue(n) })
		conns = append(conns, s.askAll(ctx, due)...)
	}
	for _, c := range conns {
		_ = c.Close()
	}
}

// isDue reports whether a peer or launcher has to be asked now. A launcher that does not answer is
// asked once more, after the grace period, unless it has no peers yet.
func (s *stopping) isDue(n SocketName) bool {
	err, asked := s.asked[n]
	switch {
	case errors.Is(err, errAgain):
		return true
	case n.isLauncher():
		return !asked || err != nil && s.peers() == 0
	}
	return (!asked || err != nil) && !s.isEnding(n.PID)
}

// askAll asks all names concurrently, and returns the open connections.
func (s *stopping) askAll(ctx context.Context, names []SocketName) []net.Conn {
	conns, replies, errs := make([]net.Conn, len(names)), make([]wire.Reply, len(names)), make([]error, len(names))
	var work sync.WaitGroup
	for i, n := range names {
		work.Go(func() { conns[i], replies[i], errs[i] = open(ctx, n, wire.Request{Request: "stop"}) })
	}
	work.Wait()
	for i, n := range names {
		s.asked[n], s.grace = errs[i], max(s.grace, replies[i].Grace)
		for _, pid := range replies[i].PIDs {
			s.ending[pid] = true
			if group, err := syscall.Getpgid(pid); err == nil { // an error on another host
				s.groups[group] = true
			}
		}
	}
	return slices.DeleteFunc(conns, func(c net.Conn) bool { return c == nil })
}

// isEnding reports whether a launcher asks the peer of a process. In the process group of a peer there
// may be a shell around it, and the next program of the shell, which the launcher ends as well.
func (s *stopping) isEnding(pid int) bool {
	group, err := syscall.Getpgid(pid)
	return s.ending[pid] || err == nil && s.groups[group]
}

// leftError returns an error that names who is left, or nil if the last one has just ended.
func (s *stopping) leftError(cause error) error {
	names, err := s.left()
	if err != nil || len(names) == 0 {
		return err
	}
	var left []string
	for _, n := range names {
		text := n.owner()
		if err := s.asked[n]; err != nil {
			text += fmt.Sprintf(", which did not accept the request: %v", errors.Unwrap(err))
		}
		left = append(left, text)
	}
	return fmt.Errorf("launch: stop job %s: not all have ended: %s: %w", s.job.name, strings.Join(left, "; "), cause)
}

// Terminate sends SIGTERM to this process, so that a program that handles the signal ends in its
// own way.
func Terminate() { _ = syscall.Kill(os.Getpid(), syscall.SIGTERM) }
