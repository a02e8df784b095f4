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

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/cores"
	"github.com/elrun/elrun/launch/internal/ctl"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
	"github.com/elrun/elrun/transport/p2p"
)

const (
	// linkPeriod is the time limit of the test of a link, which takes about 20 ms.
	linkPeriod = 5 * time.Second
	linkTrips  = 9 // round trips of a test; their median is reported
)

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
		checkTCP(tryLink(ctx, p2p.Config{ListenAddrs: []string{"/ip4/" + loopback + "/tcp/0"}})), checkUDP(tryUDP(ctx)))
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

// tryLink connects two libp2p hosts of this process and measures messages between them. They use
// the carrier of real jobs, with its handshake and encryption. So a firewall that blocks the
// peers of a job blocks this test, too.
func tryLink(ctx context.Context, cfg p2p.Config) link {
	ctx, cancel := context.WithTimeoutCause(ctx, linkPeriod, fmt.Errorf("no answer within %v", linkPeriod))
	defer cancel()
	// Peers of different jobs refuse each other, so the hosts of this test share a name.
	cfg.Job = "doctor"
	var l link
	var hosts [2]*p2p.Host
	var members []elastic.Member
	for i := range hosts {
		if hosts[i], l.err = p2p.Listen(ctx, cfg); l.err != nil {
			return l
		}
		defer hosts[i].Close()
		members = append(members, elastic.Member{ID: hosts[i].ID(), Index: i, Addrs: hosts[i].Addrs()})
	}
	if l.err = errors.Join(hosts[0].Introduce(members), hosts[1].Introduce(members)); l.err != nil {
		return l
	}
	// The first trip includes the connection, the later ones give the round-trip time.
	if l.connect, l.err = roundTrip(ctx, hosts[0], hosts[1]); l.err != nil {
		return l
	}
	var trips [linkTrips]time.Duration
	for i := range trips {
		if trips[i], l.err = roundTrip(ctx, hosts[0], hosts[1]); l.err != nil {
			return l
		}
	}
	// The median ignores single delays of a busy host.
	slices.Sort(trips[:])
	l.rtt = trips[linkTrips/2]
	return l
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

// roundTrip sends a message from a to b and one back, and returns the time taken. The first message
// in a direction makes the connection, if there is none.
func roundTrip(ctx context.Context, a, b *p2p.Host) (time.Duration, error) {
	begin := time.Now()
	for _, way := range [][2]*p2p.Host{{a, b}, {b, a}} {
		if err := way[0].Send(ctx, way[1].ID(), []byte("hello")); err != nil {
			return 0, err
		}
		if err := await(ctx, way[1]); err != nil {
			return 0, err
		}
	}
	return time.Since(begin), nil
}

// await waits for a message to h. A lost connection is an error.
func await(ctx context.Context, h *p2p.Host) error {
	for {
		select {
		case e, ok := <-h.Events():
			if e.Kind == elastic.PeerMessage {
				return nil
			}
			if !ok || e.Kind == elastic.PeerDown {
				return fmt.Errorf("the connection ended: %v", e.Err)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
