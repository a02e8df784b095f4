package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"
)

// readyPeriod is the period at which a launcher checks whether its peers are members, and the
// pause after a failed accept.
const readyPeriod = 500 * time.Millisecond

// showReady accepts connections at --ready-port, as a readiness probe, until ctx ends. It begins
// when a peer of this launcher is a member. The open port is enough, as Kubernetes only connects. A
// port that cannot be opened is reported, but does not end the job.
func (r *runCommand) showReady(ctx context.Context, t *terminal, addr netip.Addr, pass *ticketCache) {
	if r.ReadyPort == 0 || !waitMember(ctx, pass) {
		return
	}
	host := ""
	if addr.IsValid() {
		host = addr.String()
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(r.ReadyPort)))
	if err != nil {
		fmt.Fprintf(t.stderr, "elrun: --ready-port: %v\n", err)
		return
	}
	// Accept takes no context: closing the listener ends Accept.
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer stop()
	tick := time.NewTicker(readyPeriod)
	defer tick.Stop()
	for ctx.Err() == nil {
		conn, err := l.Accept()
		if err == nil {
			_ = conn.Close()
			continue
		}
		select { // a failure may be temporary, such as too many open files: try again later
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// waitMember waits until a peer of this launcher is a member; false if ctx ends first. Only
// members can issue tickets, so a ticket proves the membership.
func waitMember(ctx context.Context, pass *ticketCache) bool {
	tick := time.NewTicker(readyPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
			if _, err := pass.ticket(ctx); err == nil {
				return true
			}
		}
	}
}
