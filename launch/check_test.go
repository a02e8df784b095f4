package launch

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestCheckString(t *testing.T) {
	for want, c := range map[string]Check{
		"ok    cores: 2":           {OK, "cores", "2", ""},
		"warn  memory: low; buy":   {Warn, "memory", "low", "buy"},
		"fail  network: none; see": {Fail, "network", "none", "see"},
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
		check Check
		level Level
		want  string // part of the line
	}{
		{checkCores(4, 4, ""), OK, "cores: 4; -n N gives each of N peers GOMAXPROCS = max(1, 4/N)"},
		{checkCores(4, 2, ""), Warn, "4, but a limit of the system grants the processor time of 2; start one peer for each core granted: -n 2"},
		{checkCores(4, 3, "3"), Warn, "GOMAXPROCS=3 is set"},
		{checkMemory(1 << 30), OK, "memory: 1024 MiB available"},
		{checkMemory(littleMemory - 1), Warn, "255 MiB available; start few"},
		{checkDescriptors(1024), OK, "file descriptors: 1024"},
		{checkDescriptors(1023), Warn, "1023 for a process; raise the limit (ulimit -n 1024)"},
		{checkNetwork([]address{lo, eth}), OK, "peers of this host use 127.0.0.1 on lo; peers of others can join at 192.0.2.1 on eth0"},
		{checkNetwork([]address{lo}), OK, "127.0.0.1 on lo; there is no other address"},
		{checkNetwork([]address{lo, eth, eth, eth, eth}), OK, strings.Repeat(", 192.0.2.1 on eth0", 3)},
		{checkNetwork([]address{eth, eth, lo, eth, eth, eth, eth}), OK, "192.0.2.1 on eth0, 2 more"},
		{checkNetwork([]address{eth}), Fail, "no interface has 127.0.0.1"},
		{checkNetwork(nil), Fail, "there is no other address; set the loopback interface up"},
		{checkControl(nil, nil), OK, "they work; no job is running"},
		{checkControl([]string{"a", "b"}, nil), OK, "they work; running: a, b"},
		{checkControl([]string{"a"}, bad), Fail, "control sockets: blocked; without a control socket no peer can join"},
		{checkTCP(link{30 * ms, ms / 4, nil}), OK, "TCP and TLS: two hosts connected on 127.0.0.1 in 30.0 ms, round trip 0.25 ms"},
		{checkTCP(link{err: bad}), Fail, "libp2p over TCP and TLS: blocked; see that"},
		{checkUDP(nil), OK, "UDP: a datagram to 127.0.0.1 arrived"},
		{checkUDP(bad), Warn, "UDP: blocked; peers behind routers need UDP"},
	} {
		if got := c.check.String(); c.check.Level != c.level || !strings.Contains(got, c.want) {
			t.Errorf("got  %s\nwant %s, with %q", got, c.level, c.want)
		}
		if c.level != OK && c.check.Advice == "" {
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
