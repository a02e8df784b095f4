package launch

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"
)

// probe finds out whether hosts can connect to each other, before peers are started: each
// listens at a port of the system's choice, and says a word there that nobody else says.
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
)

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
			_, _ = fmt.Fprintln(conn, word) // who cannot read it finds no way
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

// dial tries to connect to each of the hosts, and returns those that it cannot reach, with the
// reason.
func (p *probe) dial(hosts []hostAddrs) map[string]string {
	var mu sync.Mutex
	failed := make(map[string]string)
	var work sync.WaitGroup
	for _, h := range hosts {
		work.Go(func() {
			if err := reach(h.Addrs); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed[h.Host] = err.Error()
			}
		})
	}
	work.Wait()
	return failed
}

// reach connects to one of the addresses of a host, and returns the error of the first if it
// cannot.
func reach(addrs []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), probePeriod)
	defer cancel()
	addrs = addrs[:min(mostProbed, len(addrs))]
	results := make(chan error, len(addrs))
	errs := make([]error, len(addrs))
	for i, a := range addrs {
		go func() {
			errs[i] = greetProbe(ctx, a)
			results <- errs[i]
		}()
	}
	for range addrs {
		if <-results == nil {
			return nil // the others end with ctx
		}
	}
	if len(addrs) == 0 {
		return fmt.Errorf("it has no address")
	}
	return errs[0]
}

// greetProbe connects to ADDRESS/WORD and wants to hear the word.
func greetProbe(ctx context.Context, addr string) error {
	addr, word, _ := strings.Cut(addr, "/")
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(probePeriod))
	heard, err := bufio.NewReader(conn).ReadString('\n')
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", addr, err)
	case strings.TrimSuffix(heard, "\n") != word:
		return fmt.Errorf("%s: another host answers", addr)
	}
	return nil
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
