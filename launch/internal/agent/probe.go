package agent

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/elrun/elrun/launch/internal/proc"
	"github.com/elrun/elrun/launch/internal/wire"
)

// probe tests whether hosts can connect to each other before peers are started. Each host listens
// at a port that the kernel chooses. It sends a random word, which identifies the host, and then
// data that does not fit in one packet. This data finds a path MTU black hole: where ICMP is
// filtered and large packets are lost silently, a connection is made and then hangs.
type probe struct {
	listener net.Listener
	addrs    []string // ADDRESS/WORD
	once     sync.Once
	work     sync.WaitGroup // owns the goroutine that accepts
}

const (
	// probePeriod is the time limit of a connection between two hosts.
	probePeriod = 2 * time.Second
	// probeBytes is the length of the data after the word. It exceeds jumbo frames of 9,000 bytes.
	probeBytes = 16 << 10
)

// probeData returns the data after the word. Neighbouring bytes differ.
func probeData() []byte {
	b := make([]byte, probeBytes)
	for i := range b {
		b[i] = byte(i * 7 % 251)
	}
	return b
}

// listenProbe returns a probe that accepts connections at the addresses of this host. The caller
// closes it. Connections are served one after the other; each ends after probePeriod at the latest.
func listenProbe() (*probe, error) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return nil, fmt.Errorf("listen for the other hosts: %w", err)
	}
	p := &probe{listener: l}
	word := token()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, ip := range proc.HostAddresses() {
		p.addrs = append(p.addrs, net.JoinHostPort(ip, port)+"/"+word)
	}
	p.work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.SetDeadline(time.Now().Add(probePeriod))
			_, _ = conn.Write(append([]byte(word+"\n"), probeData()...)) // an error shows at the other host
			_ = conn.Close()
		}
	})
	return p, nil
}

// dial tries to connect to each of the hosts, concurrently. Each attempt ends after probePeriod, so
// dial returns soon even if a firewall drops all packets.
func (p *probe) dial(hosts []wire.HostAddrs) wire.ProbeResult {
	var mu sync.Mutex
	r := wire.ProbeResult{Failed: make(map[string]string), Links: make(map[string]wire.LinkQuality)}
	var work sync.WaitGroup
	for _, h := range hosts {
		work.Go(func() {
			w, err := reach(h.Addrs)
			// Only the maps are shared; the attempts run without the lock.
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				r.Failed[h.Host] = err.Error()
				return
			}
			r.Links[h.Host] = w
		})
	}
	work.Wait()
	return r
}

// reach tries to connect to all addresses of a host at once and returns the first success. If all
// fail, it returns the error of the first address. A host may have addresses of networks that
// this host is not part of, so the failure of a single address means nothing.
func reach(addrs []string) (wire.LinkQuality, error) {
	ctx, cancel := context.WithTimeout(context.Background(), probePeriod)
	defer cancel()
	addrs = addrs[:min(proc.MaxProbed, len(addrs))]
	type result struct {
		way wire.LinkQuality
		err error
		of  int // index of the address
	}
	results := make(chan result, len(addrs))
	for i, a := range addrs {
		go func() {
			w, err := greetProbe(ctx, a)
			results <- result{w, err, i}
		}()
	}
	first := errors.New("it has no address")
	for range addrs {
		r := <-results
		if r.err == nil {
			return r.way, nil // the other attempts end with ctx
		}
		if r.of == 0 {
			first = r.err
		}
	}
	return wire.LinkQuality{}, first
}

// greetProbe connects to ADDRESS/WORD and checks the word and the data after it. The word detects
// another server that has the same private address in this host's own network, if both hosts are
// behind routers.
func greetProbe(ctx context.Context, addr string) (wire.LinkQuality, error) {
	addr, word, _ := strings.Cut(addr, "/")
	var d net.Dialer
	begun := time.Now()
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return wire.LinkQuality{}, err
	}
	defer conn.Close()
	// A TCP connection takes one round trip.
	trip := time.Since(begun)
	_ = conn.SetDeadline(time.Now().Add(probePeriod))
	in := bufio.NewReader(conn)
	heard, err := in.ReadString('\n')
	switch {
	case err != nil:
		return wire.LinkQuality{}, fmt.Errorf("%s: %w", addr, err)
	case strings.TrimSuffix(heard, "\n") != word:
		return wire.LinkQuality{}, fmt.Errorf("%s: another host answers", addr)
	}
	// The data needs packets of full size.
	data := make([]byte, probeBytes)
	if _, err := io.ReadFull(in, data); err != nil {
		return wire.LinkQuality{}, fmt.Errorf("%s: small packets get through and large ones do not (%w): lower the MTU of the interface, or let ICMP through", addr, err)
	}
	if !bytes.Equal(data, probeData()) {
		return wire.LinkQuality{}, fmt.Errorf("%s: data arrives with other values: look for bad memory or a bad network card", addr)
	}
	return wire.LinkQuality{MTU: pathMTU(conn), RTT: trip}, nil
}

// close ends the probe. It accepts a nil probe, and may be called again.
func (p *probe) close() {
	if p == nil {
		return
	}
	p.once.Do(func() {
		_ = p.listener.Close()
		p.work.Wait()
	})
}

// token returns a random word that distinguishes the probe of a host from other servers at the
// same address.
func token() string { return rand.Text() }
