package doctor

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/elrun/elrun/launch/spec"
	"github.com/elrun/elrun/transport/p2p"
)

// The functions below judge the values that doctor.go has read. They do no I/O.

const (
	fewDescriptors = 1024    // fewer file descriptors are a warning
	littleMemory   = 1 << 28 // bytes; less memory is a warning
	shownAddresses = 4       // the most addresses besides loopback in a finding
)

// checkCores judges how many cores the host has, and how many of them the system lets this
// process use at a time (usable): a cgroup may grant the time of fewer cores than the affinity
// mask shows. set is the value of the environment variable GOMAXPROCS.
func checkCores(cores, usable int, set string) spec.Check {
	c := spec.Check{Level: spec.OK, Name: "cores",
		Found: fmt.Sprintf("%d; -n N gives each of N peers GOMAXPROCS = max(1, %d/N)", cores, cores)}
	switch {
	case set != "":
		c.Level, c.Found = spec.Warn, fmt.Sprintf("%d; GOMAXPROCS=%s is set and holds for every peer", cores, set)
		c.Advice = "unset it, so that peers share the cores"
	case usable < cores:
		c.Level, c.Found = spec.Warn, fmt.Sprintf("%d, but a limit of the system grants the processor time of %d", cores, usable)
		c.Advice = fmt.Sprintf("start one peer for each core granted: -n %d", usable)
	}
	return c
}

// checkMemory judges the number of bytes that programs can still allocate.
func checkMemory(available uint64) spec.Check {
	c := spec.Check{Level: spec.OK, Name: "memory", Found: fmt.Sprintf("%d MiB available", available>>20)}
	if available < littleMemory {
		c.Level, c.Advice = spec.Warn, "start few peers: the system kills processes when no memory is left"
	}
	return c
}

// parseAvailable returns the value of MemAvailable, in bytes, from the text of /proc/meminfo.
func parseAvailable(meminfo string) (bytes uint64, ok bool) {
	for line := range strings.Lines(meminfo) {
		f := strings.Fields(line)
		if len(f) != 3 || f[0] != "MemAvailable:" || f[2] != "kB" {
			continue
		}
		// 50 bits, so that the shift from KiB to bytes cannot overflow.
		n, err := strconv.ParseUint(f[1], 10, 50)
		return n << 10, err == nil
	}
	return 0, false
}

// checkDescriptors judges the limit of open files per process.
func checkDescriptors(limit uint64) spec.Check {
	c := spec.Check{Level: spec.OK, Name: "file descriptors", Found: fmt.Sprintf("%d for a process", limit)}
	if limit < fewDescriptors {
		c.Level, c.Advice = spec.Warn, fmt.Sprintf("raise the limit (ulimit -n %d): elrun needs several open files for every peer", fewDescriptors)
	}
	return c
}

// address is an IP address of this host and the name of the interface that has it.
type address struct{ ip, on string }

// loopback is the address at which the peers of a host reach each other.
const loopback = "127.0.0.1"

// checkNetwork judges the addresses of the interfaces that are up.
func checkNetwork(all []address) spec.Check {
	var used string
	var others []string
	for _, a := range all {
		if a.ip == loopback {
			used = fmt.Sprintf("peers of this host use %s on %s", a.ip, a.on)
			continue
		}
		others = append(others, a.ip+" on "+a.on)
	}
	// A host with containers can have hundreds of addresses; the finding is one line.
	if n := len(others) - shownAddresses; n > 0 {
		others = append(others[:shownAddresses], fmt.Sprintf("%d more", n))
	}
	rest := "peers of others can join at " + strings.Join(others, ", ")
	if len(others) == 0 {
		rest = "there is no other address"
	}
	if used == "" {
		return spec.Check{Level: spec.Fail, Name: "network", Found: "no interface has " + loopback + ", which peers use; " + rest,
			Advice: "set the loopback interface up (ip link set lo up)"}
	}
	return spec.Check{Level: spec.OK, Name: "network", Found: used + "; " + rest}
}

// checkControl judges the test of a control socket, whose error is err. running has the names of
// the running jobs.
func checkControl(running []string, err error) spec.Check {
	if err != nil {
		return spec.Check{Level: spec.Fail, Name: "control sockets", Found: err.Error(), Advice: "without a control socket no peer can join a job"}
	}
	found := "they work; no job is running"
	if len(running) > 0 {
		found = fmt.Sprintf("they work; running: %s", strings.Join(running, ", "))
	}
	return spec.Check{Level: spec.OK, Name: "control sockets", Found: found}
}

// checkTCP judges libp2p over TCP, which connects the peers of a job: the greeting of a peer, or the error
// of the test.
func checkTCP(g p2p.Greeting, err error) spec.Check {
	const name = "libp2p over TCP and TLS"
	if err != nil {
		return spec.Check{Level: spec.Fail, Name: name, Found: err.Error(), Advice: "see that nothing blocks TCP connections to " + loopback}
	}
	return spec.Check{Level: spec.OK, Name: name, Found: formatTimes(g) + " on " + loopback}
}

// checkUDP judges UDP, over which peers behind routers connect. A failure is only a warning: relays
// work without UDP.
func checkUDP(err error) spec.Check {
	if err != nil {
		return spec.Check{Level: spec.Warn, Name: "UDP", Found: err.Error(),
			Advice: "peers behind routers need UDP to connect directly, and use relays without it; something blocks UDP to " + loopback}
	}
	return spec.Check{Level: spec.OK, Name: "UDP", Found: "a datagram to " + loopback + " arrived"}
}
