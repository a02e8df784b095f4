package launch

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// probe finds out whether hosts can connect to each other, before peers are started: each
// listens at a port of the system's choice, and says a word there that nobody else says. What
// follows the word is longer than a packet: where large packets get lost without a trace, as
// ICMP is filtered, connections are made and then hang.
type probe struct {
	listener net.Listener
	addrs    []string // ADDRESS/WORD
	once     sync.Once
	work     sync.WaitGroup
}

const (
	// probePeriod is how long a connection between two hosts may take.
	probePeriod = 2 * time.Second
	// mostProbed bounds the addresses of a host that are tried.
	mostProbed = 16
	// probeBytes follow the word. Jumbo frames have 9,000.
	probeBytes = 16 << 10
)

// probeData returns what follows the word: numbers that differ from byte to byte.
func probeData() []byte {
	b := make([]byte, probeBytes)
	for i := range b {
		b[i] = byte(i * 7 % 251)
	}
	return b
}

// listenProbe takes connections at the addresses of this host.
func listenProbe() (*probe, error) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		return nil, fmt.Errorf("listen for the other hosts: %w", err)
	}
	p := &probe{listener: l}
	word := token()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, ip := range hostAddresses() {
		p.addrs = append(p.addrs, net.JoinHostPort(ip, port)+"/"+word)
	}
	p.work.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.SetDeadline(time.Now().Add(probePeriod))
			_, _ = conn.Write(append([]byte(word+"\n"), probeData()...)) // who cannot read it finds no way
			_ = conn.Close()
		}
	})
	return p, nil
}

// hostAddresses returns the addresses of this host at which others may reach it; those of the
// loopback interface if it has no others.
func hostAddresses() []string {
	all, _ := net.InterfaceAddrs() // none: nothing can be tried
	var out, loopback []string
	for _, a := range all {
		ip, ok := a.(*net.IPNet)
		switch {
		case !ok || ip.IP.IsLinkLocalUnicast():
		case ip.IP.IsLoopback():
			loopback = append(loopback, ip.IP.String())
		default:
			out = append(out, ip.IP.String())
		}
	}
	return append(out, loopback...)[:min(mostProbed, len(out)+len(loopback))]
}

// dial tries to connect to each of the hosts.
func (p *probe) dial(hosts []hostAddrs) probeResult {
	var mu sync.Mutex
	r := probeResult{Failed: make(map[string]string), Ways: make(map[string]way)}
	var work sync.WaitGroup
	for _, h := range hosts {
		work.Go(func() {
			w, err := reach(h.Addrs)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				r.Failed[h.Host] = err.Error()
				return
			}
			r.Ways[h.Host] = w
		})
	}
	work.Wait()
	return r
}

// reach connects to one of the addresses of a host, and returns the error of the first if it
// cannot.
func reach(addrs []string) (way, error) {
	ctx, cancel := context.WithTimeout(context.Background(), probePeriod)
	defer cancel()
	addrs = addrs[:min(mostProbed, len(addrs))]
	type result struct {
		way way
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
			return r.way, nil // the others end with ctx
		}
		if r.of == 0 {
			first = r.err
		}
	}
	return way{}, first
}

// greetProbe connects to ADDRESS/WORD and wants to hear the word, and what follows it.
func greetProbe(ctx context.Context, addr string) (way, error) {
	addr, word, _ := strings.Cut(addr, "/")
	var d net.Dialer
	begun := time.Now()
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return way{}, err
	}
	defer conn.Close()
	trip := time.Since(begun)
	_ = conn.SetDeadline(time.Now().Add(probePeriod))
	in := bufio.NewReader(conn)
	heard, err := in.ReadString('\n')
	switch {
	case err != nil:
		return way{}, fmt.Errorf("%s: %w", addr, err)
	case strings.TrimSuffix(heard, "\n") != word:
		return way{}, fmt.Errorf("%s: another host answers", addr)
	}
	data := make([]byte, probeBytes)
	if _, err := io.ReadFull(in, data); err != nil {
		return way{}, fmt.Errorf("%s: small packets get through and large ones do not (%w): lower the MTU of the interface, or let ICMP through", addr, err)
	}
	if !bytes.Equal(data, probeData()) {
		return way{}, fmt.Errorf("%s: data arrives changed: look for bad memory or a bad network card", addr)
	}
	return way{MTU: pathMTU(conn), Trip: trip}, nil
}

// close ends the probe; a nil one has ended.
func (p *probe) close() {
	if p == nil {
		return
	}
	p.once.Do(func() {
		_ = p.listener.Close()
		p.work.Wait()
	})
}
