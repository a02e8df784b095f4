package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/ticket"
)

// Ticket lets peers of other hosts and users join a job.
type Ticket struct {
	Text    string    `json:"text"` // one word for a command line
	Job     string    `json:"job"`
	Expires time.Time `json:"expires"`
	// Note is for people: what to know about this ticket, or "".
	Note string `json:"note,omitempty"`
	// Open: the peers of the job listen on the network.
	Open bool `json:"open,omitempty"`
}

// IssueTicket asks a peer of the named job on this host, or of the only one if job is
// empty, for a ticket that holds for that long. It opens the job: from then on its peers
// listen on the network, but for those that were told not to. No launcher needs to run.
func IssueTicket(ctx context.Context, job string, valid time.Duration) (Ticket, error) {
	if valid < minValid || valid > maxValid {
		return Ticket{}, fmt.Errorf("launch: %w: ticket valid for %v, want %v to %v", ErrOptions, valid, minValid, maxValid)
	}
	return askTicket(ctx, job, request{Request: "ticket", ValidMS: valid.Milliseconds()})
}

// askTicket asks the peers of the job one after the other.
func askTicket(ctx context.Context, job string, r request) (Ticket, error) {
	job, err := findJob(job)
	if err != nil {
		return Ticket{}, err
	}
	answer, err := askOne(ctx, job, r, func(socketName) bool { return true })
	if err != nil {
		return Ticket{}, err
	}
	if answer.Ticket == nil {
		return Ticket{}, fmt.Errorf("launch: ask job %s for a ticket: no ticket in the answer", job)
	}
	return *answer.Ticket, nil
}

// askOne asks those peers of a job that fit until one answers without an error.
func askOne(ctx context.Context, job string, r request, fits func(socketName) bool) (reply, error) {
	names, err := listControls()
	if err != nil {
		return reply{}, fmt.Errorf("launch: list jobs: %w", err)
	}
	names = slices.DeleteFunc(names, func(n socketName) bool { return n.job != job || !fits(n) })
	last := fmt.Errorf("launch: %w: %s has no peer left", ErrNoJob, job)
	for _, n := range names {
		answer, err := ask(ctx, n, r)
		if err == nil {
			return answer, nil
		}
		last = err
	}
	return reply{}, last
}

// localTicket is how long the ticket holds that joins a job on the same host. It is used
// at once: who is in has the job's secret.
const localTicket = time.Hour

// find makes the name of the job to join, and the ticket if none is given.
func (o *Options) find(ctx context.Context) error {
	if o.Ticket == "" {
		t, err := askTicket(ctx, o.Job, request{Request: "ticket", ValidMS: localTicket.Milliseconds(), Local: true})
		if err != nil {
			return err
		}
		o.Job, o.Ticket = t.Job, t.Text
		if t.Open {
			o.Listen = openListen(o.Listen)
		}
		return nil
	}
	job, err := checkTicket(o.Ticket, time.Now())
	if err != nil {
		return fmt.Errorf("launch: bad ticket: %w", err)
	}
	if o.Job != "" && o.Job != job {
		return fmt.Errorf("launch: %w: the ticket is for job %s, not for %s", ErrOptions, job, o.Job)
	}
	o.Job, o.Listen = job, openListen(o.Listen)
	return nil
}

// openListen returns where peers listen that join an open job, if the user has not said.
func openListen(listen string) string {
	if listen == "" || listen == listenAuto {
		return listenAll
	}
	return listen
}

// Scale asks the elrun that runs the named job on this host, or the only one if job is
// empty, to make its local peers n: it starts others or asks some to leave. It returns
// what happens. Where the peers of several elruns are in one job, launcher chooses one by
// its process ID; otherwise it is 0.
func Scale(ctx context.Context, job string, n, launcher int) (string, error) {
	if n < 1 || n > maxPeers {
		return "", fmt.Errorf("launch: %w: %d peers, want 1 to %d", ErrOptions, n, maxPeers)
	}
	s, err := QueryStatus(ctx, job)
	if err != nil {
		return "", err
	}
	if launcher, err = chooseLauncher(s, launcher); err != nil {
		return "", fmt.Errorf("launch: scale job %s: %w", s.Job, err)
	}
	local := map[int]bool{}
	for _, m := range s.Members {
		if m.Launcher == launcher {
			local[m.PID] = true
		}
	}
	answer, err := askOne(ctx, s.Job, request{Request: "scale", Peers: n}, func(n socketName) bool { return local[n.pid] })
	if err != nil {
		return "", err
	}
	return answer.Scaling, nil
}

// chooseLauncher returns the process ID of the elrun that is meant.
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
		return 0, errors.New("its peers have not joined yet")
	}
	return 0, fmt.Errorf("several elruns have peers here: choose one by --elrun with its process ID (%v)", all)
}

// shownContacts is how many members a ticket names: enough to survive the death of
// some, and few enough for a line that can be copied.
const shownContacts = 5

// ticketContacts chooses the members that a ticket names: this one, and then such of
// other hosts before more of the same host.
func ticketContacts(members []elastic.Member, self elastic.Member) []ticket.Contact {
	chosen := []elastic.Member{self}
	hosts := map[string]bool{self.Host: true}
	for _, sameHost := range []bool{false, true} {
		for _, m := range members {
			there := slices.ContainsFunc(chosen, func(o elastic.Member) bool { return o.ID == m.ID })
			if there || !sameHost && hosts[m.Host] || len(chosen) == shownContacts {
				continue
			}
			hosts[m.Host] = true
			chosen = append(chosen, m)
		}
	}
	var out []ticket.Contact
	for _, m := range chosen {
		out = append(out, ticket.Contact{ID: string(m.ID), Addrs: m.Addrs})
	}
	return out
}

// checkTicket reads a ticket before anything is started, and returns its job.
func checkTicket(text string, now time.Time) (job string, err error) {
	t, err := ticket.Parse(text)
	if err != nil {
		return "", err
	}
	if now.After(t.Expiry) {
		return "", fmt.Errorf("%w: it was good until %s, and this clock says %s", ticket.ErrExpired,
			t.Expiry.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	if err := validJob(t.Job); err != nil {
		return "", fmt.Errorf("%w: %w", ticket.ErrFormat, err)
	}
	return t.Job, nil
}
