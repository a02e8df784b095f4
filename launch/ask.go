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
	"strings"
	"sync"
	"time"
)

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
			r, _ := ask(ctx, n, request{Request: "status"}) // empty after an error
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

// Errors of those who name a job, for errors.Is.
var (
	// ErrNoJob: there is no job of that name, or none at all.
	ErrNoJob = errors.New("no such job")
	// ErrWhichJob: the name does not say which of several.
	ErrWhichJob = errors.New("several jobs could be meant")
)

// QueryStatus returns the status of the named job, or of the only one if job is empty.
// Here and in Stop, Scale and IssueTicket the beginning of a name stands for the job, if
// there is only one that begins so and none that is called so.
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

// chooseJob returns job if it is one of those that run, or the only one of them that
// begins so: any, if job is empty.
func chooseJob(job string, running []string) (string, error) {
	var fit []string
	for _, name := range running {
		if strings.HasPrefix(name, job) {
			fit = append(fit, name)
		}
	}
	switch {
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

// ask makes one request to one peer. An answer that reports an error is an error.
func ask(ctx context.Context, at socketName, what request) (reply, error) {
	conn, r, err := open(ctx, at, what)
	if err == nil {
		_ = conn.Close()
	}
	return r, err
}

// open makes a request as ask does and leaves the connection open, for the caller to close.
func open(ctx context.Context, at socketName, what request) (net.Conn, reply, error) {
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
func exchange(conn net.Conn, what request) (reply, error) {
	limit := time.Now().Add(controlPeriod)
	if what.Request == "scale" || what.Request == "ticket" {
		limit = limit.Add(scalePeriod)
	}
	if err := errors.Join(sameUser(conn), conn.SetDeadline(limit)); err != nil {
		return reply{}, err
	}
	line, err := json.Marshal(what)
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

// decodeReply reads the answer to a request. One with nothing in it is an error, too.
func decodeReply(b []byte) (reply, error) {
	var r reply
	if err := json.Unmarshal(b, &r); err != nil {
		return reply{}, fmt.Errorf("decode reply: %w", err)
	}
	if r.Error != "" {
		return reply{}, errors.New(r.Error)
	}
	if r.Status == nil && !r.Stopping && r.Scaling == "" && r.Ticket == nil {
		return reply{}, errors.New("decode reply: nothing in it")
	}
	return r, nil
}

// splitIDs and join turn a comma-separated list into its parts and back.
func splitIDs(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}

func join(parts []string) string { return strings.Join(parts, ",") }
