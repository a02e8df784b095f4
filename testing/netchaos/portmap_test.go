package netchaos

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/testing/process"
)

// Host 1 is behind a router that maps ports. Host 2 is behind a router that uses a different port
// for each destination and does not map ports. The two hosts connect directly, and host 2 reports
// that its own router maps no ports.
func TestPortMap(t *testing.T) {
	parallel(t)
	l := newHomes(t)
	l.mapPorts(t)
	j := l.homeJob(t)
	ids := j.untilWhole(t, time.Time{})
	for _, pair := range [][2]int{{1, 2}, {2, 1}} {
		if p := j.path(t, pair[0], ids[pair[1]]); p.Kind != "direct" || !p.Encrypted {
			t.Errorf("host %d to host %d: path %+v", pair[0], pair[1], p)
		}
	}
	process.Until(t, "a line about the other router", func() bool { return j.elruns[2].Says("--port-map: no router answers by NAT-PMP or UPnP") })
	if j.elruns[1].Says("--port-map:") {
		t.Errorf("a line about the router that maps ports: %s", j.elruns[1].Err.String())
	}
	for line := range strings.Lines(j.elruns[2].Err.String()) {
		if strings.Contains(line, "--port-map") && len(line) > 201 {
			t.Errorf("a line of %d bytes: %s", len(line), line)
		}
	}
	j.finish(t)
}

// Two hosts in home networks join at the same time and cannot connect to each other. One of them is
// admitted. The other host reports why it waits, and is admitted when a router begins to map ports.
// No member is lost.
func TestPortMapLate(t *testing.T) {
	parallel(t)
	l := newHomes(t)
	j := l.homeJob(t)
	process.Until(t, "a line about the host that waits", func() bool {
		const line = "cannot connect: make one of the two reachable"
		return j.elruns[1].Says(line) || j.elruns[2].Says(line)
	})
	l.mapPorts(t)
	j.untilWhole(t, time.Time{})
	for _, e := range j.elruns {
		for _, ev := range e.Since(time.Time{}) {
			if name := ev.Body.Name(); name == "lost" || name == "fenced" {
				t.Errorf("host %d: %+v", e.host, ev)
			}
		}
	}
	j.finish(t)
}

// newHomes makes a network of three hosts: host 0 without a router, host 1 in a home network, and host 2 behind a router that uses a
// different port for each destination.
func newHomes(t *testing.T) *lab {
	l := newLab(t, 3)
	l.home(t, 1)
	l.behind(t, 2, "symmetric")
	return l
}

// homeJob starts a job on the first host, which the other two hosts join. Its peers ask their
// routers to map ports, and use no relay.
func (l *lab) homeJob(t *testing.T) *job {
	j := newJob(t, l, settings{pace: groupPace, flags: []string{"--relay", "never", "--port-map"}})
	j.start(t, 1)
	ticket := j.ticket(t, 0)
	j.join(t, 1, 1, ticket)
	j.join(t, 2, 1, ticket)
	return j
}

// mapPorts starts the service that maps ports on the router of host 1.
func (l *lab) mapPorts(t *testing.T) {
	router := &host{namespace: l.routers[0].namespace, name: "router"}
	service := process.Start(t, on(t, router, []string{thenVariable + "=" + pmpRole}, process.Self(t), l.hosts[1].addr))
	service.Expect(t, pmpReady)
}

// pmpRole is the role of a router's service that maps ports by NAT-PMP (RFC 6886).
const pmpRole = "router"

// pmpReady is the line that the service prints when it accepts requests. A host whose request comes earlier is refused, and asks
// again some seconds later.
const pmpReady = "router: ready"

// These constants are from NAT-PMP.
const (
	pmpPort     = 5351
	pmpAddress  = 0 // opcode: asks for the external address
	pmpUDP      = 1 // opcode: maps a UDP port
	pmpTCP      = 2
	pmpAnswer   = 128 // added to the opcode of a request in its answer
	pmpUnknown  = 5   // result code: unsupported opcode
	pmpMapBytes = 12  // length of a request to map
)

// mapPorts is the role pmpRole: it answers requests until the process is killed. The argument of
// the process is the router's external address.
func mapPorts(context.Context) error {
	outside, err := netip.ParseAddr(os.Args[1])
	if err != nil {
		return err
	}
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(homeRouter), Port: pmpPort})
	if err != nil {
		return err
	}
	fmt.Println(pmpReady)
	b := make([]byte, 64)
	for {
		n, from, err := c.ReadFromUDPAddrPort(b)
		if err != nil {
			return err
		}
		if n < 2 {
			continue
		}
		answer, err := pmpReply(b[:n], from.Addr(), outside)
		if err != nil {
			return err
		}
		if _, err := c.WriteToUDPAddrPort(answer, from); err != nil {
			return err
		}
	}
}

// pmpReply carries out a request and returns the answer. The answer has the version, opcode, result and time, and then the
// address, or the two ports and the lifetime of the request.
func pmpReply(request []byte, from, outside netip.Addr) ([]byte, error) {
	op := request[1]
	answer := []byte{0, op + pmpAnswer, 0, 0, 0, 0, 0, 1}
	switch {
	case op == pmpAddress:
		return append(answer, outside.AsSlice()...), nil
	case (op == pmpUDP || op == pmpTCP) && len(request) == pmpMapBytes:
		if binary.BigEndian.Uint32(request[8:]) == 0 {
			return append(answer, request[4:]...), nil // removes a mapping: ignored, because the network ends soon
		}
		inner, outer := binary.BigEndian.Uint16(request[4:]), binary.BigEndian.Uint16(request[6:])
		protocol := map[byte]string{pmpUDP: "udp", pmpTCP: "tcp"}[op]
		rule := fmt.Sprintf("add rule ip home let iifname wan %s dport %d dnat to %s:%d\n", protocol, outer, from, inner)
		cmd := exec.Command("nft", "-f", "-")
		cmd.Stdin = strings.NewReader(rule)
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", rule, err, out)
		}
		return append(answer, request[4:]...), nil
	}
	answer[3] = pmpUnknown
	return answer, nil
}
