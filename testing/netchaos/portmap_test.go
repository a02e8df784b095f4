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

// A host in a home whose router maps ports is reached there by one whose router has another port
// for each destination, without anybody between; that one's own router maps none, which is said.
func TestPortMap(t *testing.T) {
	parallel(t)
	l := newLab(t, 3)
	l.home(t, 1)
	l.behind(t, 2, "symmetric")
	router := l.routers[0]
	service := process.Start(t, on(t, &host{namespace: router.namespace, name: "router"}, []string{thenVariable + "=" + pmpRole}, process.Self(t), l.hosts[1].addr))
	service.Expect(t, pmpReady)
	j := newJob(t, l, settings{pace: groupPace, flags: []string{"--relay", "never", "--port-map"}})
	j.start(t, 1)
	ticket := j.ticket(t, 0)
	j.join(t, 1, 1, ticket)
	j.join(t, 2, 1, ticket)
	ids := j.untilWhole(t, time.Time{})
	for _, pair := range [][2]int{{1, 2}, {2, 1}} {
		if p := j.path(t, pair[0], ids[pair[1]]); p.Kind != "direct" || !p.Encrypted {
			t.Errorf("host %d to host %d: path %+v", pair[0], pair[1], p)
		}
	}
	process.Until(t, "a line about the other router", func() bool { return j.elruns[2].Says("--port-map: no router answers by NAT-PMP or UPnP") })
	if j.elruns[1].Says("--port-map:") {
		t.Errorf("said of the router that maps ports: %s", j.elruns[1].Err.String())
	}
	for line := range strings.Lines(j.elruns[2].Err.String()) {
		if strings.Contains(line, "--port-map") && len(line) > 201 {
			t.Errorf("a line of %d bytes: %s", len(line), line)
		}
	}
	j.finish(t)
}

// pmpRole is a router's service that maps ports, as RFC 6886 (NAT-PMP) has it.
const pmpRole = "router"

// pmpReady is the line that the service prints when it can be asked: a host that asks earlier is
// refused, and asks again a minute later.
const pmpReady = "router: ready"

// The parts of NAT-PMP that matter here.
const (
	pmpPort     = 5351
	pmpAddress  = 0 // what is the address outside?
	pmpUDP      = 1 // map a port
	pmpTCP      = 2
	pmpAnswer   = 128 // added to the opcode
	pmpUnknown  = 5   // result: no such opcode
	pmpMapBytes = 12  // of a request to map
)

// mapPorts answers until the process is killed. Its argument is the router's address outside.
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

// pmpReply does what a request asks for, and returns the answer: version, opcode, result and time,
// and then the address, or the two ports and the lifetime as they were asked for.
func pmpReply(request []byte, from, outside netip.Addr) ([]byte, error) {
	op := request[1]
	answer := []byte{0, op + pmpAnswer, 0, 0, 0, 0, 0, 1}
	switch {
	case op == pmpAddress:
		return append(answer, outside.AsSlice()...), nil
	case (op == pmpUDP || op == pmpTCP) && len(request) == pmpMapBytes:
		if binary.BigEndian.Uint32(request[8:]) == 0 {
			return append(answer, request[4:]...), nil // it is given back: the network is about to end
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
