package run

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
	"github.com/elrun/elrun/transport/ticket"
)

func TestCheckTicket(t *testing.T) {
	expiry := time.Unix(5000, 0)
	issue := func(job string) string {
		k, err := ticket.New(job, ticket.Identity{}, [ticket.SeedSize]byte{1}, expiry, []string{"/ip4/192.0.2.1/tcp/7"})
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
	late := spec.Options{Join: true, Ticket: issue("job-1")} // after its expiry
	if err := find(t.Context(), &late); !errors.Is(err, ticket.ErrExpired) || errors.Is(err, spec.ErrOptions) {
		t.Errorf("find: %v", err)
	}
}

func TestFindByName(t *testing.T) {
	job := testJob(t)
	serve(t, job, 0, ctl.Services{Ticket: func(_ context.Context, r wire.Request) (spec.Ticket, error) {
		return spec.Ticket{Text: fmt.Sprint(time.Duration(r.ValidMS)*time.Millisecond, r.Local)}, nil
	}})
	o := spec.Options{Join: true, Job: job}
	if err := find(t.Context(), &o); err != nil || o.Ticket != "87600h0m0s true" {
		t.Errorf("got %+v, %v", o, err)
	}
}
