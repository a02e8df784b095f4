package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
	"github.com/elrun/elrun/transport/p2p"
	"github.com/elrun/elrun/transport/ticket"
)

// greetPeriod is the time limit of the test of one address of a member. It covers the connection,
// the TLS handshake and the answer.
const greetPeriod = 5 * time.Second

// Member is launch.DoctorMember.
func Member(ctx context.Context, target string) ([]spec.Check, error) {
	// A ticket has no colon, so it is never taken for HOST:PORT.
	if _, _, err := net.SplitHostPort(target); err == nil {
		return doctorContact(ctx, "", []string{target}), nil
	}
	t, err := ticket.Parse(target)
	if err != nil {
		return nil, fmt.Errorf("launch: %w: neither HOST:PORT nor a ticket: %w", spec.ErrOptions, err)
	}
	out := []spec.Check{checkExpiry(t.Job, t.Expiry, time.Now())}
	return append(out, doctorContact(ctx, "", t.Addrs)...), nil
}

// doctorContact tests all addresses of a member concurrently. want is the member's ID, "" if
// unknown.
func doctorContact(ctx context.Context, want elastic.ID, addrs []string) []spec.Check {
	out := make([]spec.Check, len(addrs))
	var work sync.WaitGroup
	for i, a := range addrs {
		work.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, greetPeriod, fmt.Errorf("no answer within %v", greetPeriod))
			defer cancel()
			g, err := p2p.Greet(ctx, a)
			if ctx.Err() != nil && err != nil {
				err = context.Cause(ctx)
			}
			out[i] = checkGreeting(a, want, g, err)
		})
	}
	work.Wait()
	// One working address is enough to join: other failures become warnings.
	if slices.ContainsFunc(out, func(c spec.Check) bool { return c.Level == spec.OK }) {
		for i := range out {
			if out[i].Level == spec.Fail {
				out[i].Level, out[i].Advice = spec.Warn, "another address of the job works"
			}
		}
	}
	return out
}

// checkExpiry judges the expiry of a ticket by the clock of this host.
func checkExpiry(job string, expiry, now time.Time) spec.Check {
	c := spec.Check{Level: spec.OK, Name: "ticket", Found: fmt.Sprintf("for job %s, good for %v", job, expiry.Sub(now).Round(time.Second))}
	if !now.Before(expiry) {
		c.Level, c.Found = spec.Fail, fmt.Sprintf("for job %s, expired %v ago by the clock here", job, now.Sub(expiry).Round(time.Second))
		c.Advice = "get another one: elrun ticket " + job + " on a host of the job"
	}
	return c
}

// checkGreeting judges the greeting g at an address; err is the error that ended the greeting, if
// any.
func checkGreeting(addr string, want elastic.ID, g p2p.Greeting, err error) spec.Check {
	c := spec.Check{Level: spec.Fail, Name: addr}
	if want != "" {
		c.Name = want.Short() + " at " + addr
	}
	switch {
	// The first step that failed decides: the connection, the handshake, the identity, the
	// admission of newcomers.
	case g.Connect == 0:
		c.Found, c.Advice = fmt.Sprintf("no connection: %s", wire.ClipNote(fmt.Sprint(err))), adviseConnect(err)
	case g.ID == "":
		c.Found, c.Advice = wire.ClipNote(fmt.Sprint(err)), "no peer of elrun answers at this port: get a new ticket of the job (elrun ticket), or name the port of a peer"
	case want != "" && g.ID != want:
		c.Found, c.Advice = fmt.Sprintf("another peer, %s, answers there: the peer that was looked for has ended", g.ID.Short()), "get a new ticket: elrun ticket"
	case !g.Open:
		c.Level, c.Found = spec.Warn, fmt.Sprintf("%s, which admits no newcomers (%s)", formatGreeting(g), wire.ClipNote(fmt.Sprint(err)))
		c.Advice = "open the job: elrun ticket on a host of it"
	default:
		c.Level, c.Found = spec.OK, formatGreeting(g)+", which lets in holders of a ticket"
	}
	return c
}

// formatGreeting describes the connection to a member.
func formatGreeting(g p2p.Greeting) string {
	return fmt.Sprintf("%s with peer %s", formatTimes(g), g.ID.Short())
}

// formatTimes describes how long the connection took.
func formatTimes(g p2p.Greeting) string {
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	return fmt.Sprintf("connected in %.1f ms, TLS handshake in %.1f ms", ms(g.Connect), ms(g.Handshake))
}

// adviseConnect returns the remedy for a failed connection.
func adviseConnect(err error) string {
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns):
		return "is the name right? try the address"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: has the job ended, or does it listen elsewhere (--listen)?"
	case errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH):
		return "the network has no route there: is it a private address of another network?"
	case errors.Is(err, os.ErrDeadlineExceeded) || strings.Contains(fmt.Sprint(err), "no answer"):
		return "let TCP through to this port in the firewalls between; is the host up?"
	}
	return "try elrun doctor on the other host, too"
}
