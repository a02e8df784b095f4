package doctor

import (
	"context"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/spec"
)

// checkNamed returns the check with a name.
func checkNamed(t *testing.T, all []spec.Check, name string) spec.Check {
	t.Helper()
	i := slices.IndexFunc(all, func(c spec.Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no check %q in %v", name, all)
	}
	return all[i]
}

// On a host where the tests of this package can run, no check of Doctor fails.
func TestDoctor(t *testing.T) {
	job := spec.JobName("doctor", strconv.Itoa(os.Getpid())+"t")
	c, err := ctl.Serve(ctl.SocketName{Job: job, PID: os.Getpid()}, ctl.Services{Status: func() spec.Status { return spec.Status{Job: job} }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all := Host(t.Context())
	for _, c := range all {
		if c.Level == spec.Fail || c.Level != spec.OK && c.Advice == "" || c.Found == "" {
			t.Errorf("%v", c)
		}
	}
	for _, name := range []string{"cores", "file descriptors", "network", "libp2p over TCP and TLS", "UDP"} {
		checkNamed(t, all, name)
	}
	if c := checkNamed(t, all, "control sockets"); !strings.Contains(c.Found, job) {
		t.Errorf("want job %s: %v", job, c)
	}
	names, err := ctl.List()
	left := func(n ctl.SocketName) bool { return n.PID == os.Getpid() && n.Job != job }
	if err != nil || slices.ContainsFunc(names, left) {
		t.Errorf("sockets that are left among %v, %v", names, err)
	}
}

func TestDoctorCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	all := Host(ctx)
	for name, want := range map[string]spec.Level{"control sockets": spec.Fail, "libp2p over TCP and TLS": spec.Fail, "UDP": spec.Warn} {
		if c := checkNamed(t, all, name); c.Level != want {
			t.Errorf("want %s: %v", want, c)
		}
	}
}
