package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/elrun/elrun/internal/cores"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
	"github.com/elrun/elrun/transport/p2p"
)

// linkPeriod is the time limit of the test of a link, which takes about 20 ms.
const linkPeriod = 5 * time.Second

// Host is launch.Doctor.
func Host(ctx context.Context) []spec.Check {
	out := []spec.Check{checkCores(runtime.NumCPU(), cores.Count(), os.Getenv("GOMAXPROCS"))}
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		// The file exists on Linux only; elsewhere the check is left out.
		if available, ok := parseAvailable(string(b)); ok {
			out = append(out, checkMemory(available))
		}
	}
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		out = append(out, checkDescriptors(uint64(limit.Cur)))
	}
	return append(out, checkNetwork(addresses()), checkControl(tryControl(ctx)),
		checkTCP(tryTCP(ctx)), checkUDP(tryUDP(ctx)))
}

// addresses returns the addresses of the interfaces that are up. It leaves out interfaces whose
// addresses cannot be read: the check then reports the rest.
func addresses() []address {
	interfaces, _ := net.Interfaces()
	var out []address
	for _, i := range interfaces {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		all, _ := i.Addrs()
		for _, a := range all {
			if n, ok := a.(*net.IPNet); ok {
				out = append(out, address{n.IP.String(), i.Name})
			}
		}
	}
	return out
}

// tryControl lists the running jobs, and tests a control socket of its own: it opens one, finds it
// in the list and asks it, as elrun status does. So a directory that cannot be written, or a socket
// path that is too long, shows up here and not in the first job.
func tryControl(ctx context.Context) (running []string, err error) {
	jobs, err := ctl.Jobs(ctx)
	if err != nil {
		return nil, err
	}
	for _, j := range jobs {
		running = append(running, j.Job)
	}
	at := ctl.SocketName{Job: spec.JobName("doctor", strings.ToLower(rand.Text()[:5])), Index: 0, PID: os.Getpid()}
	// A client may stop this job, which does not exist: that has no effect.
	c, err := ctl.Serve(at, ctl.Services{Status: func() spec.Status { return spec.Status{Job: at.Job} }, Stop: func() {}})
	if err != nil {
		return nil, err
	}
	names, err := ctl.List()
	if err == nil && !slices.Contains(names, at) {
		err = errors.New("the control socket that was just opened is not found in the folders of control sockets; these folders must be private to the user")
	}
	if err == nil {
		_, err = ctl.Ask(ctx, at, wire.Request{Request: "status"})
	}
	return running, errors.Join(err, c.Close())
}

// tryTCP connects to a peer of this process over loopback, with the handshake of real jobs. So a firewall
// that blocks the peers of a job blocks this test, too.
func tryTCP(ctx context.Context) (g p2p.Greeting, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, linkPeriod, fmt.Errorf("no answer within %v", linkPeriod))
	defer cancel()
	h, err := p2p.Listen(ctx, p2p.Config{Job: "doctor", ListenAddrs: []string{"/ip4/" + loopback + "/tcp/0"}})
	if err != nil {
		return g, err
	}
	defer h.Close()
	if g, err = p2p.Greet(ctx, h.Addrs()[0]); g.ID == h.ID() {
		err = nil // it admits no newcomers, which is right
	}
	return g, err
}

// tryUDP sends a datagram over loopback and reads it.
func tryUDP(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, linkPeriod, fmt.Errorf("no answer within %v", linkPeriod))
	defer cancel()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(loopback)})
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	if _, err = c.WriteTo([]byte("hello"), c.LocalAddr()); err == nil {
		_, _, err = c.ReadFrom(make([]byte, 16))
	}
	return cmp.Or(context.Cause(ctx), err)
}
