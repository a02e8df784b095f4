package doctor

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/elrun/elrun/launch/spec"
	"github.com/elrun/elrun/transport/p2p"
)

func TestCheckString(t *testing.T) {
	for want, c := range map[string]spec.Check{
		"ok    cores: 2":           {Level: spec.OK, Name: "cores", Found: "2", Advice: ""},
		"warn  memory: low; buy":   {Level: spec.Warn, Name: "memory", Found: "low", Advice: "buy"},
		"fail  network: none; see": {Level: spec.Fail, Name: "network", Found: "none", Advice: "see"},
	} {
		if got := c.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestChecks(t *testing.T) {
	lo, eth := address{"127.0.0.1", "lo"}, address{"192.0.2.1", "eth0"}
	bad := errors.New("blocked")
	ms := time.Millisecond
	for _, c := range []struct {
		check spec.Check
		level spec.Level
		want  string // part of the line
	}{
		{checkCores(4, 4, ""), spec.OK, "cores: 4; -n N gives each of N peers GOMAXPROCS = max(1, 4/N)"},
		{checkCores(4, 2, ""), spec.Warn, "4, but a limit of the system grants the processor time of 2; start one peer for each core granted: -n 2"},
		{checkCores(4, 3, "3"), spec.Warn, "GOMAXPROCS=3 is set"},
		{checkMemory(1 << 30), spec.OK, "memory: 1024 MiB available"},
		{checkMemory(littleMemory - 1), spec.Warn, "255 MiB available; start few"},
		{checkDescriptors(1024), spec.OK, "file descriptors: 1024"},
		{checkDescriptors(1023), spec.Warn, "1023 for a process; raise the limit (ulimit -n 1024)"},
		{checkNetwork([]address{lo, eth}), spec.OK, "peers of this host use 127.0.0.1 on lo; peers of others can join at 192.0.2.1 on eth0"},
		{checkNetwork([]address{lo}), spec.OK, "127.0.0.1 on lo; there is no other address"},
		{checkNetwork([]address{lo, eth, eth, eth, eth}), spec.OK, strings.Repeat(", 192.0.2.1 on eth0", 3)},
		{checkNetwork([]address{eth, eth, lo, eth, eth, eth, eth}), spec.OK, "192.0.2.1 on eth0, 2 more"},
		{checkNetwork([]address{eth}), spec.Fail, "no interface has 127.0.0.1"},
		{checkNetwork(nil), spec.Fail, "there is no other address; set the loopback interface up"},
		{checkControl(nil, nil), spec.OK, "they work; no job is running"},
		{checkControl([]string{"a", "b"}, nil), spec.OK, "they work; running: a, b"},
		{checkControl([]string{"a"}, bad), spec.Fail, "control sockets: blocked; without a control socket no peer can join"},
		{checkTCP(p2p.Greeting{Connect: ms / 2, Handshake: 3 * ms}, nil), spec.OK, "TCP and TLS: connected in 0.5 ms, TLS handshake in 3.0 ms on 127.0.0.1"},
		{checkTCP(p2p.Greeting{}, bad), spec.Fail, "libp2p over TCP and TLS: blocked; see that"},
		{checkUDP(nil), spec.OK, "UDP: a datagram to 127.0.0.1 arrived"},
		{checkUDP(bad), spec.Warn, "UDP: blocked; peers behind routers need UDP"},
	} {
		if got := c.check.String(); c.check.Level != c.level || !strings.Contains(got, c.want) {
			t.Errorf("got  %s\nwant %s, with %q", got, c.level, c.want)
		}
		if c.level != spec.OK && c.check.Advice == "" {
			t.Errorf("no advice: %v", c.check)
		}
	}
}

func TestParseAvailable(t *testing.T) {
	for text, want := range map[string]uint64{
		"MemTotal:  9 kB\nMemAvailable:  2048 kB\nBuffers: 1 kB\n": 2 << 20,
		"MemAvailable: 0 kB":                    0,
		"":                                      0,
		"MemAvailable: 12":                      0,
		"MemAvailable: x kB":                    0,
		"MemAvailable: -1 kB":                   0,
		"MemAvailable: 99999999999999999999 kB": 0,
		"MemAvailable: 1125899906842624 kB":     0, // 2^50, whose bytes would not fit
	} {
		got, ok := parseAvailable(text)
		if there := want > 0 || strings.Contains(text, " 0 kB"); ok != there || ok && got != want {
			t.Errorf("%q: got %d, %v", text, got, ok)
		}
	}
}
