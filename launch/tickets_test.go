package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/ticket"
)

// serveJob serves peer 0 of a job with testServices, started by the launcher with that
// process ID.
func serveJob(t *testing.T, job string, launcher int) {
	t.Helper()
	s := testServices()
	s.status = func() Status {
		return Status{Job: job, Members: []MemberStatus{{ID: "a", Launcher: launcher, PID: os.Getpid(), State: stateRunning}}}
	}
	c, err := serveControl(socketName{job, 0, os.Getpid()}, s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
}

func TestScaleAndTicketOverControl(t *testing.T) {
	job := testJob(t)
	serveJob(t, job, 77)
	if text, err := Scale(t.Context(), job, 3, 0); text != "3" || err != nil {
		t.Errorf("scale: %q, %v", text, err)
	}
	if _, err := Scale(t.Context(), job, 3, 78); err == nil || !strings.Contains(err.Error(), "[77]") {
		t.Errorf("scale by another launcher: %v", err)
	}
	if _, err := Scale(t.Context(), job, 0, 0); !errors.Is(err, ErrOptions) {
		t.Errorf("scale to none: %v", err)
	}
	if k, err := IssueTicket(t.Context(), job, time.Hour); k.Text != "1h0m0s false" || err != nil {
		t.Errorf("ticket: %+v, %v", k, err)
	}
	if _, err := IssueTicket(t.Context(), job, 0); !errors.Is(err, ErrOptions) {
		t.Errorf("ticket that never holds: %v", err)
	}
	if _, err := IssueTicket(t.Context(), job+"-not", time.Hour); !errors.Is(err, ErrNoJob) {
		t.Errorf("ticket of no job: %v", err)
	}
}

func TestServiceErrors(t *testing.T) {
	s := testServices()
	s.scale = func(context.Context, int) (string, error) { return "", errNoLauncher }
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

func TestChooseLauncher(t *testing.T) {
	with := func(pids ...int) Status {
		var s Status
		for _, pid := range pids {
			s.Members = append(s.Members, MemberStatus{Launcher: pid})
		}
		return s
	}
	for _, c := range []struct {
		s    Status
		want int
		got  int
		err  string
	}{
		{with(5, 5, 0), 0, 5, ""},
		{with(5, 6), 6, 6, ""},
		{with(6, 5, 6), 0, 0, "[5 6]"},
		{with(5), 7, 0, "process 7"},
		{with(0), 0, 0, "not joined yet"},
	} {
		got, err := chooseLauncher(c.s, c.want)
		if got != c.got || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%+v, %d: got %d, %v", c.s, c.want, got, err)
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
