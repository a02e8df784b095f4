package ctl

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/elastic/wish"
	"github.com/elrun/elrun/internal/pause"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

const (
	maxControls   = 16              // requests served at the same time
	ControlPeriod = 2 * time.Second // time limit of a request and its answer
	ScalePeriod   = 8 * time.Second // additional time for answers that need other members, which may be busy
)

// Services are the functions of a peer behind its control socket. They must be safe for concurrent
// use. Tests and elrun doctor set only the functions that they need.
type Services struct {
	Status       func() spec.Status
	Stop         func()                                                 // makes the peer end
	Grace        time.Duration                                          // time that the peer gets to end
	Scale        func(ctx context.Context, h spec.Host) (string, error) // an empty h.Name means all hosts
	Ticket       func(ctx context.Context, r wire.Request) (spec.Ticket, error)
	Refresh      func(text string) (spec.Ticket, error)
	Revoke, Kick func(ctx context.Context, name string) (string, error)
	Bury         func(dead []elastic.ID) (string, error)
	Record       func() flight.Record
	Save         func(ctx context.Context, since int64) (wish.Saved, error)
}

// Answer implements Responder.
func (s Services) Answer(ctx context.Context, r wire.Request) (out wire.Reply, err error) {
	switch r.Request {
	case "status":
		status := s.Status()
		// Paths make the answer long, so the answer has paths only if the client asks for them.
		for i := range status.Members {
			if !r.Paths {
				status.Members[i].Paths = nil
			}
		}
		out.Status = &status
	// The caller ends the peer after the answer: see control.serve.
	case "stop":
		out.Stopping, out.Grace = true, s.Grace
	case "scale":
		out.Scaling, err = s.Scale(ctx, spec.Host{Name: r.Host, Slots: r.Peers})
	case "ticket":
		out.Ticket = new(spec.Ticket)
		*out.Ticket, err = s.Ticket(ctx, r)
	case "refresh":
		out.Ticket = new(spec.Ticket)
		*out.Ticket, err = s.Refresh(r.Ticket)
	case "revoke":
		out.Done, err = s.Revoke(ctx, r.Ticket)
	case "kick":
		out.Done, err = s.Kick(ctx, r.Peer)
	case "dead":
		out.Done, err = s.Bury(r.Dead)
	case "record":
		record := s.Record()
		out.Record = &record
	case "checkpoint":
		out.Saved = new(wish.Saved)
		*out.Saved, err = s.Save(ctx, r.Since)
	default:
		err = fmt.Errorf("unknown request %q", r.Request)
	}
	return out, err
}

// Responder answers requests on a control socket. It must be safe for concurrent use.
type Responder interface {
	// Answer returns the reply to a request that has been checked. With an error the client gets only
	// its text.
	Answer(ctx context.Context, r wire.Request) (wire.Reply, error)
	// End ends the peer. It is called after the reply to stop has been sent.
	End()
}

// answer returns the reply to the line of a request.
func answer(ctx context.Context, by Responder, line []byte) (out wire.Reply) {
	r, err := wire.DecodeRequest(line)
	if err == nil {
		out, err = by.Answer(ctx, r)
	}
	if err != nil {
		return wire.Reply{Error: err.Error()}
	}
	return out
}

// End implements Responder.
func (s Services) End() { s.Stop() }

// Control serves a peer's control socket until Close.
//
// One goroutine accepts, and each connection has its own. At most maxControls connections are
// served at the same time, each for about ControlPeriod, and further connections wait in the
// kernel's queue. This bounds the resources that clients can hold.
type Control struct {
	listener net.Listener
	// by answers the requests: this peer itself, or in a launcher the peer's remote, which asks the
	// agent on the peer's host.
	by     Responder
	ctx    context.Context
	cancel context.CancelFunc
	// work counts the goroutine that accepts connections, and the goroutine of each connection.
	work sync.WaitGroup
}

// Serve opens the control socket of a peer and serves it until Close.
func Serve(at SocketName, by Responder) (*Control, error) {
	l, err := Listen(at)
	if err != nil {
		return nil, fmt.Errorf("launch: open control socket of job %s: %w", at.Job, err)
	}
	c := &Control{listener: l, by: by}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.work.Go(c.accept)
	return c, nil
}

// accept accepts connections until the listener is closed.
func (c *Control) accept() {
	slots := make(chan struct{}, maxControls)
	for {
		conn, err := c.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// The error may be temporary, such as a lack of descriptors. So pause and retry.
			if pause.For(c.ctx, ControlPeriod) != nil {
				return
			}
			continue
		}
		select {
		case slots <- struct{}{}:
			c.work.Go(func() {
				c.serve(conn)
				<-slots
			})
		case <-c.ctx.Done():
			_ = conn.Close()
		}
	}
}

// serve answers one request. Errors concern only the client and are dropped.
func (c *Control) serve(conn net.Conn) {
	release := context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	defer release()
	defer conn.Close()
	if SameUser(conn) != nil || conn.SetDeadline(time.Now().Add(ControlPeriod)) != nil {
		return
	}
	line, err := wire.NewReader(conn, wire.MaxRequest).Line()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, ScalePeriod)
	defer cancel()
	r := answer(ctx, c.by, line)
	text, err := wire.Encode(r)
	if err != nil {
		return
	}
	_ = conn.SetDeadline(time.Now().Add(ControlPeriod)) // the answer may have taken long
	_, _ = conn.Write(text)
	if r.Stopping {
		// The client closes the connection once all peers have answered. If this peer ended
		// earlier, peers without the stop request would report it as lost.
		_, _ = conn.Read(make([]byte, 1))
		c.by.End()
	}
}

// Close removes the socket and waits for the requests that are being answered.
func (c *Control) Close() error {
	c.cancel()
	err := c.listener.Close()
	c.work.Wait()
	return err
}

// SocketName identifies a control socket and is part of the socket's address. The process ID
// distinguishes a restarted peer from its predecessor, whose file may remain. The socket of the
// launcher that began the job has no process ID: so no second launcher can begin a job of the same
// name.
type SocketName struct {
	Job   string
	Index int // LauncherIndex for a launcher
	PID   int
}

const (
	// LauncherIndex is the index in the name of a launcher's socket; launcherWord stands for it.
	LauncherIndex = -1
	launcherWord  = "launcher"
)

// isLauncher reports whether the socket is that of a launcher.
func (s SocketName) isLauncher() bool { return s.Index == LauncherIndex }

// String returns job/index.pid, job/launcher or job/launcher.pid, the last part of the address. No
// job name contains the separator.
func (s SocketName) String() string {
	switch {
	case !s.isLauncher():
		return fmt.Sprintf("%s/%d.%d", s.Job, s.Index, s.PID)
	case s.PID == 0:
		return s.Job + "/" + launcherWord
	}
	return fmt.Sprintf("%s/%s.%d", s.Job, launcherWord, s.PID)
}

// owner describes the process behind the socket for people.
func (s SocketName) owner() string {
	switch {
	case !s.isLauncher():
		return fmt.Sprintf("peer %d (pid %d)", s.Index, s.PID)
	case s.PID == 0:
		return "the elrun that began the job"
	}
	return fmt.Sprintf("the elrun that joined the job (pid %d)", s.PID)
}

// ParseSocketName is the inverse of String.
func ParseSocketName(s string) (SocketName, error) {
	job, rest, _ := strings.Cut(s, "/")
	index, pid, _ := strings.Cut(rest, ".")
	n := SocketName{Job: job, Index: LauncherIndex}
	var err, err2 error
	if index != launcherWord {
		n.Index, err = strconv.Atoi(index)
	}
	if rest != launcherWord {
		n.PID, err2 = strconv.Atoi(pid)
	}
	// A name has one spelling only: "01" would otherwise be the same peer as "1".
	if err != nil || err2 != nil || spec.ValidJob(job) != nil || n.Index < LauncherIndex || n.Index >= spec.MaxPeers+spec.MaxNodes || n.PID < 0 ||
		n.PID == 0 && rest != launcherWord || n.String() != s {
		return SocketName{}, fmt.Errorf("launch: %q is not the name of a control socket", s)
	}
	return n, nil
}
