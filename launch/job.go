package launch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Errors of Find and of the methods of a Job. Compare them with errors.Is.
var (
	// ErrNoJob reports that no job has the name, that there is no job at all, or that the job has
	// ended.
	ErrNoJob = errors.New("no such job")
	// ErrWhichJob reports that a name fits several jobs.
	ErrWhichJob = errors.New("several jobs could be meant")
)

// Job is a job of this user that has peers, or an elrun that starts some, on this host. Its methods
// send requests to the control sockets of these peers. No launcher needs to run, except for Scale. A Job is only a name and
// holds no resources, so it needs no Close. Its methods are safe for concurrent use; after the end
// of the job they return ErrNoJob.
type Job struct{ name string }

// Find returns the job with a name, or the only job if name is empty. The beginning of a name is
// enough if it is the beginning of exactly one job's name and no job's full name. The errors are
// ErrNoJob and ErrWhichJob. Find sends no request to a peer, so that it also finds a job whose
// peers do not answer.
func Find(ctx context.Context, name string) (*Job, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("launch: find job: %w", context.Cause(ctx))
	}
	sockets, err := listSockets()
	if err != nil {
		return nil, fmt.Errorf("launch: list jobs: %w", err)
	}
	// A job has a socket for each peer: equal names count once.
	var running []string
	for _, n := range sockets {
		running = append(running, n.job)
	}
	slices.Sort(running)
	if name, err = chooseJob(name, slices.Compact(running)); err != nil {
		return nil, err
	}
	return &Job{name: name}, nil
}

// Name returns the full name of the job.
func (j *Job) Name() string { return j.name }

// Status returns the state of the job. It combines the reports of the peers that answer within 2 s.
func (j *Job) Status(ctx context.Context) (Status, error) { return j.status(ctx, false) }

// Paths is Status with the paths of the data from each peer on this host to the other peers.
func (j *Job) Paths(ctx context.Context) (Status, error) { return j.status(ctx, true) }

// status is Status or, with paths set, Paths.
func (j *Job) status(ctx context.Context, paths bool) (Status, error) {
	peers, err := j.peers()
	if err != nil {
		return Status{}, err
	}
	// One answer is enough: peers that do not answer appear with the values that other peers
	// report.
	reports, err := askStatus(ctx, peers, paths)
	if len(reports) == 0 {
		return Status{}, fmt.Errorf("launch: job %s: none of its peers on this host answers: %w; elrun stop ends them or names their processes", j.name, err)
	}
	return mergeStatus(reports), nil
}

// Scale asks the elrun process that started the job's peers on this host to change their number to
// n: it starts peers or asks some to leave. It returns a description of the action for people. If
// several elrun processes have peers in the job, launcher chooses one of them by its process ID;
// otherwise launcher is 0.
func (j *Job) Scale(ctx context.Context, n, launcher int) (string, error) {
	if n < 1 || n > maxPeers {
		return "", fmt.Errorf("launch: %w: %d peers, want 1 to %d", ErrOptions, n, maxPeers)
	}
	return j.scale(ctx, request{Request: "scale", Peers: n}, launcher)
}

// ScaleHost is Scale for one host of a job that was started with Remote.Hosts: it changes the
// number of peers there to h.Slots, which may be 0. A new host is connected in the same way as the
// hosts of Remote.Hosts.
func (j *Job) ScaleHost(ctx context.Context, h Host, launcher int) (string, error) {
	if h.Slots < 0 || h.Slots > maxPeers {
		return "", fmt.Errorf("launch: %w: %d peers on host %s, want 0 to %d", ErrOptions, h.Slots, h.Name, maxPeers)
	}
	if _, err := addHost(nil, h); err != nil {
		return "", fmt.Errorf("launch: %w: %w", ErrOptions, err)
	}
	return j.scale(ctx, request{Request: "scale", Peers: h.Slots, Host: h.Name}, launcher)
}

// scale sends a scale request to a launcher.
func (j *Job) scale(ctx context.Context, what request, launcher int) (string, error) {
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
	answer, err := j.ask(ctx, what, func(n socketName) bool { return local[n.pid] })
	if err != nil {
		return "", err
	}
	return answer.Scaling, nil
}

// Ticket returns a new ticket with a validity of 1 s to 10 years. It opens the job: from then on
// its peers listen on the network, except for peers with Listen set to local.
func (j *Job) Ticket(ctx context.Context, valid time.Duration) (Ticket, error) {
	return j.Invite(ctx, Invitation{Valid: valid})
}

// Invitation describes the limits of a ticket.
type Invitation struct {
	Valid time.Duration // 1 s to 10 years
	Uses  int           // number of peers that the ticket admits, 0 for any number
}

// Invite is Ticket with a limit on the number of peers.
func (j *Job) Invite(ctx context.Context, i Invitation) (Ticket, error) {
	switch {
	case i.Valid < minValid || i.Valid > maxValid:
		return Ticket{}, fmt.Errorf("launch: %w: ticket valid for %v, want %v to %v", ErrOptions, i.Valid, minValid, maxValid)
	case i.Uses < 0:
		return Ticket{}, fmt.Errorf("launch: %w: ticket for %d peers, want 0 (any number) or more", ErrOptions, i.Uses)
	}
	return j.askTicket(ctx, request{Request: "ticket", ValidMS: i.Valid.Milliseconds(), Uses: uint64(i.Uses)})
}

// Refresh returns a ticket of the job with the addresses of the present members. Validity and
// number of peers stay the same.
func (j *Job) Refresh(ctx context.Context, ticket string) (Ticket, error) {
	return j.askTicket(ctx, request{Request: "refresh", Ticket: ticket})
}

// Revoke revokes the ticket whose text or ID is ticket, or all tickets of the job if ticket is "".
// A revoked ticket admits nobody. Peers that have joined by the ticket stay. Revoke returns a
// description of the effect for people.
func (j *Job) Revoke(ctx context.Context, ticket string) (string, error) {
	answer, err := j.ask(ctx, request{Request: "revoke", Ticket: ticket}, func(socketName) bool { return true })
	return answer.Done, err
}

// Kick puts a peer out of the job. The peer is named by its ID, as Status shows it, or by its
// index if the index is unique. Neither the peer nor any holder of its ticket is admitted again.
// Kick returns a description of the effect for people.
func (j *Job) Kick(ctx context.Context, peer string) (string, error) {
	answer, err := j.ask(ctx, request{Request: "kick", Peer: peer}, func(socketName) bool { return true })
	return answer.Done, err
}

// askTicket sends a request whose answer is a ticket.
func (j *Job) askTicket(ctx context.Context, r request) (Ticket, error) {
	answer, err := j.ask(ctx, r, func(socketName) bool { return true })
	if err != nil {
		return Ticket{}, err
	}
	if answer.Ticket == nil {
		return Ticket{}, fmt.Errorf("launch: ask job %s for a ticket: no ticket in the answer", j.name)
	}
	return *answer.Ticket, nil
}

// ask sends a request to the peers for which the function fits returns true, one after the other,
// until one answers without an error. It returns the last error.
func (j *Job) ask(ctx context.Context, r request, fits func(socketName) bool) (reply, error) {
	peers, err := j.peers()
	if err != nil {
		return reply{}, err
	}
	// If no peer fits or answers, the error is that the job has ended.
	last := j.ended()
	for _, n := range peers {
		if !fits(n) {
			continue
		}
		answer, err := ask(ctx, n, r)
		if err == nil {
			return answer, nil
		}
		last = err
	}
	return reply{}, last
}

// peers returns the control sockets of the job's peers, at least one.
func (j *Job) peers() ([]socketName, error) {
	all, err := listSockets()
	if err != nil {
		return nil, fmt.Errorf("launch: list the peers of job %s: %w", j.name, err)
	}
	all = slices.DeleteFunc(all, func(n socketName) bool { return n.job != j.name })
	peers := slices.DeleteFunc(slices.Clone(all), socketName.isLauncher)
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

// Jobs returns the status of every job of this user that has peers on this host, sorted by name.
// It asks all peers at once; no launcher needs to run. Peers that do not answer in time are left
// out.
func Jobs(ctx context.Context) ([]Status, error) {
	peers, err := listControls()
	if err != nil {
		return nil, fmt.Errorf("launch: list jobs: %w", err)
	}
	reports, _ := askStatus(ctx, peers, false)
	// Each peer reports its own figures, and one job's reports are merged below.
	byJob := map[string][]Status{}
	for _, r := range reports {
		byJob[r.Job] = append(byJob[r.Job], r)
	}
	out := []Status{}
	for _, reports := range byJob {
		out = append(out, mergeStatus(reports))
	}
	slices.SortFunc(out, func(a, b Status) int { return cmp.Compare(a.Job, b.Job) })
	return out, nil
}

// askStatus asks all peers at once for their reports. It returns the reports, and the first error
// of the other peers.
func askStatus(ctx context.Context, peers []socketName, paths bool) ([]Status, error) {
	replies, errs := make([]reply, len(peers)), make([]error, len(peers))
	var work sync.WaitGroup
	for i, n := range peers {
		work.Go(func() {
			replies[i], errs[i] = ask(ctx, n, request{Request: "status", Paths: paths})
			if errs[i] == nil && replies[i].Status == nil {
				errs[i] = fmt.Errorf("launch: ask %v: no status in the answer", n)
			}
		})
	}
	work.Wait()
	var reports []Status
	for i, r := range replies {
		if errs[i] == nil {
			r.Status.Job = peers[i].job // the address of the socket has the right name
			reports = append(reports, *r.Status)
		}
	}
	return reports, cmp.Or(errs...)
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
func chooseLauncher(s Status, want int) (int, error) {
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
