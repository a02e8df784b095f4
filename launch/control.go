package launch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/pause"
)

const (
	maxRequest    = 4 << 10         // maximum length of a request line in bytes
	maxReply      = 16 << 20        // maximum length of an answer in bytes
	maxControls   = 16              // requests served at the same time
	controlPeriod = 2 * time.Second // time limit of a request and its answer
	scalePeriod   = 8 * time.Second // additional time for answers that need other members, which may be busy
	// The range of a ticket's validity.
	minValid, maxValid = time.Second, 10 * 365 * 24 * time.Hour
)

// request is a request on a control socket.
type request struct {
	Request string `json:"request"` // status, stop, scale, ticket, refresh, revoke, kick or dead
	// Peers is the number of peers that scale asks for: in the whole job, or on Host.
	Peers int    `json:"peers,omitempty"`
	Host  string `json:"host,omitempty"`
	// ValidMS is the validity of a new ticket, in milliseconds.
	ValidMS int64 `json:"valid_ms,omitempty"`
	// Uses is the number of peers that a ticket admits, 0 for any number.
	Uses uint64 `json:"uses,omitempty"`
	// Ticket is the text of the ticket to refresh, or the text or ID of the ticket to revoke.
	Ticket string `json:"ticket,omitempty"`
	// Peer is the peer to kick.
	Peer string `json:"peer,omitempty"`
	// Dead are IDs of peers that another launcher knows to be dead.
	Dead []elastic.ID `json:"dead,omitempty"`
	// Paths asks for the paths of the peer in status.
	Paths bool `json:"paths,omitempty"`
	// Local restricts a ticket to this host: the job stays closed to other hosts.
	Local bool `json:"local,omitempty"`
}

// reply is the answer to a request. Exactly one field is set; Grace and PIDs go with Stopping.
type reply struct {
	Status   *Status `json:"status,omitempty"`
	Stopping bool    `json:"stopping,omitempty"` // the peer, or all peers of the launcher, are about to end
	// Grace is the time that the peer gets to end; 0 if it is unknown.
	Grace time.Duration `json:"grace,omitempty"`
	// PIDs has the process IDs of the launcher's peers, which it asks to end.
	PIDs    []int   `json:"pids,omitempty"`
	Scaling string  `json:"scaling,omitempty"` // description of the launcher's action
	Ticket  *Ticket `json:"ticket,omitempty"`
	Done    string  `json:"done,omitempty"` // description of the effect of revoke or kick
	Error   string  `json:"error,omitempty"`
}

// decodeRequest decodes a request line and checks the values that the request uses.
func decodeRequest(line []byte) (request, error) {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return request{}, fmt.Errorf("launch: decode request: %w", err)
	}
	switch {
	case r.Request == "scale" && (r.Peers < 0 || r.Peers < 1 && r.Host == "" || r.Peers > maxPeers):
		return request{}, fmt.Errorf("launch: decode request: %d peers: want 1 to %d", r.Peers, maxPeers)
	case r.Request == "ticket" && (r.ValidMS < minValid.Milliseconds() || r.ValidMS > maxValid.Milliseconds()):
		return request{}, fmt.Errorf("launch: decode request: ticket valid for %d ms: want %v to %v", r.ValidMS, minValid, maxValid)
	case r.Request == "dead" && len(r.Dead) > maxDead:
		return request{}, fmt.Errorf("launch: decode request: %d dead peers: want at most %d", len(r.Dead), maxDead)
	}
	return r, nil
}

// services are the functions of a peer behind its control socket. They must be safe for concurrent
// use. Tests and elrun doctor set only the functions that they need.
type services struct {
	status       func() Status
	stop         func()                                            // makes the peer end
	grace        time.Duration                                     // time that the peer gets to end
	scale        func(ctx context.Context, h Host) (string, error) // an empty h.Name means all hosts
	ticket       func(ctx context.Context, r request) (Ticket, error)
	refresh      func(text string) (Ticket, error)
	revoke, kick func(ctx context.Context, name string) (string, error)
	bury         func(dead []elastic.ID) (string, error)
}

// answer implements responder.
func (s services) answer(ctx context.Context, line []byte) reply {
	r, err := decodeRequest(line)
	if err != nil {
		return reply{Error: err.Error()}
	}
	switch r.Request {
	case "status":
		status := s.status()
		// Paths make the answer long, so the answer has paths only if the client asks for them.
		for i := range status.Members {
			if !r.Paths {
				status.Members[i].Paths = nil
			}
		}
		return reply{Status: &status}
	// The caller ends the peer after the answer: see control.serve.
	case "stop":
		return reply{Stopping: true, Grace: s.grace}
	case "scale":
		text, err := s.scale(ctx, Host{Name: r.Host, Slots: r.Peers})
		if err != nil {
			return reply{Error: err.Error()}
		}
		return reply{Scaling: text}
	case "ticket":
		t, err := s.ticket(ctx, r)
		return ticketReply(t, err)
	case "refresh":
		return ticketReply(s.refresh(r.Ticket))
	case "revoke":
		return doneReply(s.revoke(ctx, r.Ticket))
	case "kick":
		return doneReply(s.kick(ctx, r.Peer))
	case "dead":
		return doneReply(s.bury(r.Dead))
	}
	return reply{Error: fmt.Sprintf("unknown request %q", r.Request)}
}

// ticketReply returns the reply with a ticket or an error.
func ticketReply(t Ticket, err error) reply {
	if err != nil {
		return reply{Error: err.Error()}
	}
	return reply{Ticket: &t}
}

// doneReply returns the reply with a description or an error.
func doneReply(text string, err error) reply {
	if err != nil {
		return reply{Error: err.Error()}
	}
	return reply{Done: text}
}

// responder answers requests on a control socket. It must be safe for concurrent use.
type responder interface {
	// answer returns the reply to a request line.
	answer(ctx context.Context, line []byte) reply
	// end ends the peer. It is called after the reply to stop has been sent.
	end()
}

// end implements responder.
func (s services) end() { s.stop() }

// control serves a peer's control socket until Close.
//
// One goroutine accepts, and each connection has its own. At most maxControls connections are
// served at the same time, each for about controlPeriod, and further connections wait in the
// kernel's queue. This bounds the resources that clients can hold.
type control struct {
	listener net.Listener
	// by answers the requests: this peer itself, or in a launcher the peer's remote, which asks the
	// agent on the peer's host.
	by     responder
	ctx    context.Context
	cancel context.CancelFunc
	// work counts the goroutine that accepts connections, and the goroutine of each connection.
	work sync.WaitGroup
}

// serveControl opens the control socket of a peer and serves it until Close.
func serveControl(at socketName, by responder) (*control, error) {
	l, err := listenControl(at)
	if err != nil {
		return nil, fmt.Errorf("launch: open control socket of job %s: %w", at.job, err)
	}
	c := &control{listener: l, by: by}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.work.Go(c.accept)
	return c, nil
}

// accept accepts connections until the listener is closed.
func (c *control) accept() {
	slots := make(chan struct{}, maxControls)
	for {
		conn, err := c.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// The error may be temporary, such as a lack of descriptors. So pause and retry.
			if pause.For(c.ctx, controlPeriod) != nil {
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
func (c *control) serve(conn net.Conn) {
	release := context.AfterFunc(c.ctx, func() { _ = conn.Close() })
	defer release()
	defer conn.Close()
	if sameUser(conn) != nil || conn.SetDeadline(time.Now().Add(controlPeriod)) != nil {
		return
	}
	line, err := bufio.NewReaderSize(conn, maxRequest).ReadSlice('\n')
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.ctx, scalePeriod)
	defer cancel()
	r := c.by.answer(ctx, line)
	b, err := json.Marshal(r)
	if err != nil {
		return
	}
	_ = conn.SetDeadline(time.Now().Add(controlPeriod)) // the answer may have taken long
	_, _ = conn.Write(append(b, '\n'))
	if r.Stopping {
		// The client closes the connection once all peers have answered. If this peer ended
		// earlier, peers without the stop request would report it as lost.
		_, _ = conn.Read(make([]byte, 1))
		c.by.end()
	}
}

// Close removes the socket and waits for the requests that are being answered.
func (c *control) Close() error {
	c.cancel()
	err := c.listener.Close()
	c.work.Wait()
	return err
}

// socketName identifies a control socket and is part of the socket's address. The process ID
// distinguishes a restarted peer from its predecessor, whose file may remain. The socket of the
// launcher that began the job has no process ID: so no second launcher can begin a job of the same
// name.
type socketName struct {
	job   string
	index int // launcherIndex for a launcher
	pid   int
}

const (
	// launcherIndex is the index in the name of a launcher's socket; launcherWord stands for it.
	launcherIndex = -1
	launcherWord  = "launcher"
)

// isLauncher reports whether the socket is that of a launcher.
func (n socketName) isLauncher() bool { return n.index == launcherIndex }

// String returns job/index.pid, job/launcher or job/launcher.pid, the last part of the address. No
// job name contains the separator.
func (n socketName) String() string {
	switch {
	case !n.isLauncher():
		return fmt.Sprintf("%s/%d.%d", n.job, n.index, n.pid)
	case n.pid == 0:
		return n.job + "/" + launcherWord
	}
	return fmt.Sprintf("%s/%s.%d", n.job, launcherWord, n.pid)
}

// owner describes the process behind the socket for people.
func (n socketName) owner() string {
	switch {
	case !n.isLauncher():
		return fmt.Sprintf("peer %d (pid %d)", n.index, n.pid)
	case n.pid == 0:
		return "the elrun that began the job"
	}
	return fmt.Sprintf("the elrun that joined the job (pid %d)", n.pid)
}

// parseSocketName is the inverse of String.
func parseSocketName(s string) (socketName, error) {
	job, rest, _ := strings.Cut(s, "/")
	index, pid, _ := strings.Cut(rest, ".")
	n := socketName{job: job, index: launcherIndex}
	var err, err2 error
	if index != launcherWord {
		n.index, err = strconv.Atoi(index)
	}
	if rest != launcherWord {
		n.pid, err2 = strconv.Atoi(pid)
	}
	// A name has one spelling only: "01" would otherwise be the same peer as "1".
	if err != nil || err2 != nil || validJob(job) != nil || n.index < launcherIndex || n.index >= maxPeers+maxNodes || n.pid < 0 ||
		n.pid == 0 && rest != launcherWord || n.String() != s {
		return socketName{}, fmt.Errorf("launch: %q is not the name of a control socket", s)
	}
	return n, nil
}
