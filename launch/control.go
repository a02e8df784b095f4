package launch

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
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
)

// request is what may be asked on a control socket.
type request struct {
	Request string `json:"request"`
}

// reply is the answer; one field is set.
type reply struct {
	Status   *Status `json:"status,omitempty"`
	Stopping bool    `json:"stopping,omitempty"` // the peer is about to end
	Error    string  `json:"error,omitempty"`
}

// decodeRequest reads one line.
func decodeRequest(line []byte) (request, error) {
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return request{}, fmt.Errorf("launch: decode request: %w", err)
	}
	return r, nil
}

// answer returns the reply to a request line.
func answer(line []byte, status func() Status) reply {
	r, err := decodeRequest(line)
	if err != nil {
		return reply{Error: err.Error()}
	}
	switch r.Request {
	case "status":
		s := status()
		return reply{Status: &s}
	case "stop":
		return reply{Stopping: true}
	}
	return reply{Error: fmt.Sprintf("unknown request %q", r.Request)}
}

// control serves a peer's control socket. Close ends it.
//
// One goroutine accepts, one serves each connection; there are at most maxControls of
// these at a time, each ends after controlPeriod, and further ones wait in the
// kernel's queue. So whoever is let in cannot make a peer hold much.
type control struct {
	listener net.Listener
	status   func() Status
	stop     func()
	ctx      context.Context
	cancel   context.CancelFunc
	work     sync.WaitGroup
}

// serveControl opens the socket of peer index and answers on it until Close.
// status, and stop, which is to end the peer, are called from several goroutines at once.
func serveControl(at socketName, status func() Status, stop func()) (*control, error) {
	l, err := listenControl(at)
	if err != nil {
		return nil, fmt.Errorf("launch: open control socket of job %s: %w", at.job, err)
	}
	c := &control{listener: l, status: status, stop: stop}
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
	r := answer(line, c.status)
	b, err := json.Marshal(r)
	if err != nil {
		return
	}
	_, _ = conn.Write(append(b, '\n'))
	if r.Stopping {
		// Whoever asked hangs up when all peers have answered. One that ended earlier would
		// look like a loss to those that do not know yet.
		_, _ = conn.Read(make([]byte, 1))
		c.stop()
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
	if !ok || !ok2 || err != nil || err2 != nil || validJob(job) != nil || i < 0 || i >= maxPeers || p <= 0 {
		return socketName{}, fmt.Errorf("launch: %q is not the name of a control socket", s)
	}
	n := socketName{job, i, p}
	if n.String() != s {
		return socketName{}, fmt.Errorf("launch: %q is not the name of a control socket", s)
	}
	return n, nil
}

// Jobs returns the status of every job of this user that has peers on this host,
// by name. Peers that do not answer in time are left out. No launcher needs to run:
// it is the peers that are asked, all at once.
func Jobs(ctx context.Context) ([]Status, error) {
	names, err := listControls()
	if err != nil {
		return nil, fmt.Errorf("launch: list jobs: %w", err)
	}
	reports := make([]*Status, len(names))
	var work sync.WaitGroup
	for i, n := range names {
		work.Go(func() {
			r, _ := ask(ctx, n, "status") // empty after an error
			reports[i] = r.Status
		})
	}
	work.Wait()
	byJob := map[string][]Status{}
	for i, r := range reports {
		if r != nil {
			byJob[names[i].job] = append(byJob[names[i].job], *r)
		}
	}
	out := []Status{}
	for _, reports := range byJob {
		out = append(out, mergeStatus(reports))
	}
	slices.SortFunc(out, func(a, b Status) int { return cmp.Compare(a.Job, b.Job) })
	return out, nil
}

// ErrNoJob: there is no job of that name, or none at all.
var ErrNoJob = errors.New("no such job")

// QueryStatus returns the status of the named job, or of the only one if job is empty.
func QueryStatus(ctx context.Context, job string) (Status, error) {
	all, err := Jobs(ctx)
	if err != nil {
		return Status{}, err
	}
	var names []string
	for _, s := range all {
		names = append(names, s.Job)
	}
	if job, err = chooseJob(job, names); err != nil {
		return Status{}, err
	}
	return all[slices.Index(names, job)], nil
}

// chooseJob returns job if it is one of those that run, or the only one of them if job
// is empty.
func chooseJob(job string, running []string) (string, error) {
	switch {
	case slices.Contains(running, job):
		return job, nil
	case len(running) == 0:
		return "", fmt.Errorf("%w: none is running on this host", ErrNoJob)
	case job == "" && len(running) == 1:
		return running[0], nil
	case job == "":
		return "", fmt.Errorf("%w: name one of %s", ErrNoJob, strings.Join(running, ", "))
	}
	return "", fmt.Errorf("%w: %s; running: %s", ErrNoJob, job, strings.Join(running, ", "))
}

// ask makes one request to one peer. An answer that reports an error is an error.
func ask(ctx context.Context, at socketName, what string) (reply, error) {
	conn, r, err := open(ctx, at, what)
	if err == nil {
		_ = conn.Close()
	}
	return r, err
}

// open makes a request as ask does and leaves the connection open, for the caller to close.
func open(ctx context.Context, at socketName, what string) (net.Conn, reply, error) {
	conn, err := dialControl(ctx, at)
	if err != nil {
		return nil, reply{}, fmt.Errorf("launch: ask %v: %w", at, err)
	}
	r, err := exchange(conn, what)
	if err != nil {
		_ = conn.Close()
		return nil, reply{}, fmt.Errorf("launch: ask %v: %w", at, err)
	}
	return conn, r, nil
}

// exchange sends a request and reads the line that comes back.
func exchange(conn net.Conn, what string) (reply, error) {
	if err := errors.Join(sameUser(conn), conn.SetDeadline(time.Now().Add(controlPeriod))); err != nil {
		return reply{}, err
	}
	line, err := json.Marshal(request{Request: what})
	if err != nil {
		return reply{}, err
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		return reply{}, err
	}
	b, err := bufio.NewReader(io.LimitReader(conn, maxReply)).ReadBytes('\n')
	if err != nil {
		return reply{}, fmt.Errorf("read the answer: %w", err)
	}
	return decodeReply(b)
}

// decodeReply reads the answer to a request. One that has neither a status nor says
// that the peer is stopping is an error, too.
func decodeReply(b []byte) (reply, error) {
	var r reply
	if err := json.Unmarshal(b, &r); err != nil {
		return reply{}, fmt.Errorf("decode reply: %w", err)
	}
	if r.Error != "" {
		return reply{}, errors.New(r.Error)
	}
	if r.Status == nil && !r.Stopping {
		return reply{}, errors.New("decode reply: nothing in it")
	}
	return r, nil
}

// splitIDs and join turn a comma-separated list into its parts and back.
func splitIDs(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

func join(parts []string) string { return strings.Join(parts, ",") }
