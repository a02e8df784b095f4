package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/ticket"
)

func TestServiceErrors(t *testing.T) {
	s := testServices()
	s.scale = func(context.Context, Host) (string, error) { return "", errNoLauncher }
	s.ticket = func(context.Context, time.Duration, bool) (Ticket, error) { return Ticket{}, errors.New("no member") }
	for line, want := range map[string]string{
		`{"request":"scale","peers":2}`:         "has ended",
		`{"request":"ticket","valid_ms":10000}`: "no member",
	} {
		if r := s.answer(t.Context(), []byte(line)); !strings.Contains(r.Error, want) {
			t.Errorf("%s: %+v", line, r)
		}
	}
}

func TestTicketContacts(t *testing.T) {
	var members []elastic.Member
	for i := range 12 {
		members = append(members, elastic.Member{ID: elastic.ID(fmt.Sprint(i)), Host: fmt.Sprint("host", i/4)})
	}
	var ids []string
	for _, c := range ticketContacts(members, members[1]) {
		ids = append(ids, c.ID)
	}
	// Itself, one of each other host, and the first of what is left.
	if got := strings.Join(ids, " "); got != "1 4 8 0 2" {
		t.Errorf("got %s", got)
	}
}

func TestCheckTicket(t *testing.T) {
	expiry := time.Unix(5000, 0)
	issue := func(job string) string {
		k, err := ticket.New(bytes.Repeat([]byte{1}, ticket.KeySize), job, expiry, []ticket.Contact{{ID: "a"}})
		if err != nil {
			t.Fatal(err)
		}
		return k.String()
	}
	if job, err := checkTicket(issue("job-1"), expiry); job != "job-1" || err != nil {
		t.Errorf("got %q, %v", job, err)
	}
	if _, err := checkTicket(issue("job-1"), expiry.Add(time.Second)); !errors.Is(err, ticket.ErrExpired) {
		t.Errorf("late: %v", err)
	}
	for _, bad := range []string{"", "garbage", issue("a/b")} {
		if _, err := checkTicket(bad, expiry); !errors.Is(err, ticket.ErrFormat) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	late := Options{Join: true, Ticket: issue("job-1")} // long ago
	if err := late.find(t.Context()); !errors.Is(err, ticket.ErrExpired) || errors.Is(err, ErrOptions) {
		t.Errorf("find: %v", err)
	}
}

func TestFindByName(t *testing.T) {
	job := testJob(t)
	serveJob(t, job, 77)
	o := Options{Join: true, Job: job}
	if err := o.find(t.Context()); err != nil || o.Ticket != "1h0m0s true" {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestIssueBeforeJoining(t *testing.T) {
	p := &peer{a: &agent{}, id: newFakeNet(nil).identity(nil)}
	if k, err := p.issue(t.Context(), time.Hour, true); err == nil {
		t.Errorf("got %+v", k)
	}
	_ = p.id.Close()
}
