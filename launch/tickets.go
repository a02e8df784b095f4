package launch

import (
	"context"
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

// localTicket is how long the ticket holds that joins a job on the same host. It is used
// at once: who is in has the job's secret.
const localTicket = time.Hour

// find makes the name of the job to join, and the ticket if none is given.
func (o *Options) find(ctx context.Context) error {
	if o.Ticket == "" {
		j, err := Find(ctx, o.Job)
		if err != nil {
			return err
		}
		t, err := j.askTicket(ctx, request{Request: "ticket", ValidMS: localTicket.Milliseconds(), Local: true})
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
