package launch

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/transport/p2p"
)

// checkNamed returns the check with a name.
func checkNamed(t *testing.T, all []Check, name string) Check {
	t.Helper()
	i := slices.IndexFunc(all, func(c Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no check %q in %v", name, all)
	}
	return all[i]
}

// On a host where the tests of this package can run, no check of Doctor fails.
func TestDoctor(t *testing.T) {
	job := testJob(t)
	serve(t, job, 0, func() Status { return newReducer(job, memberAt(0)).report(time.Time{}) })
	all := Doctor(t.Context())
	for _, c := range all {
		if c.Level == Fail || c.Level != OK && c.Advice == "" || c.Found == "" {
			t.Errorf("%v", c)
		}
	}
	for _, name := range []string{"cores", "file descriptors", "network", "libp2p over TCP and TLS", "UDP"} {
		checkNamed(t, all, name)
	}
	if c := checkNamed(t, all, "control sockets"); !strings.Contains(c.Found, job) {
		t.Errorf("want job %s: %v", job, c)
	}
	names, err := listControls()
	left := func(n socketName) bool { return n.pid == os.Getpid() && n.job != job }
	if err != nil || slices.ContainsFunc(names, left) {
		t.Errorf("sockets that are left among %v, %v", names, err)
	}
}

func TestDoctorCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	all := Doctor(ctx)
	for name, want := range map[string]Level{"control sockets": Fail, "libp2p over TCP and TLS": Fail, "UDP": Warn} {
		if c := checkNamed(t, all, name); c.Level != want {
			t.Errorf("want %s: %v", want, c)
		}
	}
}

// Each step of a link reports its error.
func TestTryLink(t *testing.T) {
	if l := tryLink(t.Context(), p2p.Config{ListenAddrs: []string{"/ip4/nowhere/tcp/0"}}); l.err == nil {
		t.Error("no error from an address that is none")
	}
	l := tryLink(t.Context(), p2p.Config{ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}})
	if l.err != nil || l.connect <= 0 || l.rtt <= 0 {
		t.Errorf("got %+v", l)
	}
}

func TestAwaitEnds(t *testing.T) {
	h, err := p2p.Listen(t.Context(), p2p.Config{Job: "j", ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := await(ctx, h); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the end of ctx", err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if err := await(t.Context(), h); err == nil || !strings.Contains(err.Error(), "ended") {
		t.Errorf("closed: %v", err)
	}
}
