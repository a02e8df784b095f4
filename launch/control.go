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
)

const (
	maxRequest    = 4 << 10         // bytes of a request line
	maxReply      = 16 << 20        // bytes of an answer
	maxControls   = 16              // requests served at a time
	controlPeriod = 2 * time.Second // for one request and its answer
	scalePeriod   = 8 * time.Second // for answers that need others, who may be busy
	// The lives that a ticket may have.
	minValid, maxValid = time.Second, 10 * 365 * 24 * time.Hour
)

// request is what may be asked on a control socket.
type request struct {
	Request string `json:"request"` // status, stop, scale, ticket, refresh, revoke or kick
	// Peers is how many peers scale asks for: in all, or on Host.
	Peers int    `json:"peers,omitempty"`
	Host  string `json:"host,omitempty"`
	// ValidMS is how long a ticket holds, in milliseconds.
	ValidMS int64 `json:"valid_ms,omitempty"`
	// Uses is how many peers a ticket lets in, 0 for any number.
	Uses uint64 `json:"uses,omitempty"`
	// Ticket is the text of the one to refresh, or the text or ID of the one to revoke.
	Ticket string `json:"ticket,omitempty"`
	// Peer is the one to kick.
	Peer string `json:"peer,omitempty"`
	// Paths says that status has the paths of the peer.
	Paths bool `json:"paths,omitempty"`
	// Local says that only this host uses the ticket: the job stays closed to others.
	Local bool `json:"local,omitempty"`
}

// reply is the answer; one field is set.
type reply struct {
	Status   *Status `json:"status,omitempty"`
	Stopping bool    `json:"stopping,omitempty"` // the peer is about to end
	Scaling  string  `json:"scaling,omitempty"`  // what the launcher does
	Ticket   *Ticket `json:"ticket,omitempty"`
	Done     string  `json:"done,omitempty"` // what revoke or kick did
	Error    string  `json:"error,omitempty"`
}

// decodeRequest reads one line and checks the values that belong to the request.
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
	}
	return r, nil
}

// services are what a peer does on request. They are called from several goroutines at
// once.
type services struct {
	status       func() Status
	stop         func()                                            // is to end the peer
	scale        func(ctx context.Context, h Host) (string, error) // h.Name is "" for all hosts
	ticket       func(ctx context.Context, r request) (Ticket, error)
	refresh      func(text string) (Ticket, error)
	revoke, kick func(ctx context.Context, name string) (string, error)
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
		for i := range status.Members {
			if !r.Paths {
				status.Members[i].Paths = nil
			}
		}
		return reply{Status: &status}
	case "stop":
		return reply{Stopping: true}
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
	}
	return reply{Error: fmt.Sprintf("unknown request %q", r.Request)}
}

// ticketReply is the answer that is a ticket.
func ticketReply(t Ticket, err error) reply {
	if err != nil {
		return reply{Error: err.Error()}
	}
	return reply{Ticket: &t}
}

// doneReply is the answer that says what was done.
func doneReply(text string, err error) reply {
	if err != nil {
		return reply{Error: err.Error()}
	}
	return reply{Done: text}
}

// responder answers what is asked on a control socket. It is called from several goroutines at
// once.
type responder interface {
	// answer returns the reply to a request line.
	answer(ctx context.Context, line []byte) reply
	// end ends the peer, after whoever has asked for it had the reply.
	end()
}

// end implements responder.
func (s services) end() { s.stop() }

// control serves a peer's control socket. Close ends it.
//
// One goroutine accepts, one serves each connection; there are at most maxControls of
// these at a time, each ends after controlPeriod, and further ones wait in the
// kernel's queue. So whoever is let in cannot make a peer hold much.
type control struct {
	listener net.Listener
	by       responder
	ctx      context.Context
	cancel   context.CancelFunc
	work     sync.WaitGroup
}

// serveControl opens the socket of a peer and answers on it until Close.
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

// accept takes connections until the listener is closed.
func (c *control) accept() {
	slots := make(chan struct{}, maxControls)
	for {
		conn, err := c.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			select { // out of descriptors, say: the job matters more
			case <-time.After(controlPeriod):
				continue
			case <-c.ctx.Done():
				return
			}
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

// serve answers one request. What goes wrong here concerns only the one who asked.
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
	_ = conn.SetDeadline(time.Now().Add(controlPeriod)) // the answer may have taken its time
	_, _ = conn.Write(append(b, '\n'))
	if r.Stopping {
		// Whoever asked hangs up when all peers have answered. One that ended earlier would
		// look like a loss to those that do not know yet.
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

// socketName is what is in the address of a control socket.
type socketName struct {
	job   string
	index int
	pid   int
}

// String is the last part of the address: job/index.pid with a separator that no
// job name contains.
func (n socketName) String() string { return fmt.Sprintf("%s/%d.%d", n.job, n.index, n.pid) }

// parseSocketName is the inverse of String.
func parseSocketName(s string) (socketName, error) {
	job, rest, ok := strings.Cut(s, "/")
	index, pid, ok2 := strings.Cut(rest, ".")
	i, err := strconv.Atoi(index)
	p, err2 := strconv.Atoi(pid)
	if !ok || !ok2 || err != nil || err2 != nil || validJob(job) != nil || i < 0 || i >= maxPeers+maxNodes || p <= 0 {
		return socketName{}, fmt.Errorf("launch: %q is not the name of a control socket", s)
	}
	n := socketName{job, i, p}
	if n.String() != s {
		return socketName{}, fmt.Errorf("launch: %q is not the name of a control socket", s)
	}
	return n, nil
}
