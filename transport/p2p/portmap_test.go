package p2p

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elrun/elrun/elastic"
)

// outerIP is the external address of fakeGateway, on loopback.
const outerIP = "127.0.0.2"

// fakeGateway is a router on loopback: it forwards connections to the ports that it has granted.
type fakeGateway struct {
	t       *testing.T
	refuses bool          // it grants no port
	hang    chan struct{} // Close returns when this is closed; nil for at once

	mu      sync.Mutex
	granted map[int]net.Listener
	passed  map[int]int // connections
}

func (f *fakeGateway) AddMapping(_ context.Context, _ string, port int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuses || f.granted[port] != nil {
		return nil // as libp2p's gateway does, which records that there is no mapping
	}
	l, err := new(net.ListenConfig).Listen(f.t.Context(), "tcp", outerIP+":0") // an address at which h itself does not listen
	if err != nil {
		return err
	}
	if f.granted == nil {
		f.granted, f.passed = make(map[int]net.Listener), make(map[int]int)
	}
	f.granted[port] = l
	go f.pass(l, port)
	return nil
}

// pass forwards connections until the listener is closed.
func (f *fakeGateway) pass(l net.Listener, port int) {
	for {
		out, err := l.Accept()
		if err != nil {
			return
		}
		in, err := new(net.Dialer).DialContext(f.t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			_ = out.Close()
			continue
		}
		f.mu.Lock()
		f.passed[port]++
		f.mu.Unlock()
		for _, way := range [][2]net.Conn{{out, in}, {in, out}} {
			go func() {
				_, _ = io.Copy(way[0], way[1])
				_ = way[0].Close()
			}()
		}
	}
}

func (f *fakeGateway) GetMapping(_ string, port int) (netip.AddrPort, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.granted[port]
	if l == nil {
		return netip.AddrPort{}, false
	}
	return netip.MustParseAddrPort(l.Addr().String()), true
}

func (f *fakeGateway) Close() error {
	f.mu.Lock()
	for _, l := range f.granted {
		_ = l.Close()
	}
	f.mu.Unlock()
	if f.hang != nil {
		<-f.hang
	}
	return nil
}

// mapping returns a host that maps its ports at the gateway of find, the results that MapPorts has
// reported, and a function that ends MapPorts.
func mapping(t *testing.T, find func(context.Context) (gateway, error)) (h *Host, told chan error, end func()) {
	t.Helper()
	h, err := Listen(t.Context(), Config{Job: "test", Path: "direct", ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}, gateway: find})
	if err != nil {
		t.Fatal(err)
	}
	told = make(chan error, 16)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { h.MapPorts(ctx, func(err error) { told <- err }) })
	end = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(func() {
		end()
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h, told, end
}

// Hosts that know only the router's address connect with a host behind it, and send data to it,
// through ports that the router maps when the host begins to listen on the network.
func TestMapPorts(t *testing.T) {
	g := &fakeGateway{t: t}
	h, told, _ := mapping(t, func(context.Context) (gateway, error) { return g, nil })
	if err := h.Open([]string{"/ip4/0.0.0.0/tcp/0"}); err != nil {
		t.Fatal(err)
	}
	if err := <-told; err != nil {
		t.Fatal(err)
	}
	h.Mapped(t.Context())
	var outer []string
	for _, l := range g.granted {
		outer = append(outer, fmt.Sprintf("/ip4/%s/tcp/%d", outerIP, l.Addr().(*net.TCPAddr).Port))
	}
	outer = slices.DeleteFunc(outer, func(a string) bool { return !slices.Contains(h.Addrs(), a) })
	if len(g.granted) != 2 || len(outer) != 1 {
		t.Fatalf("%d ports are mapped, of which %v are told, want two and one", len(g.granted), outer)
	}
	other, err := Listen(t.Context(), Config{Job: "test", Path: "direct", ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	v := elastic.View{Epoch: 1, Members: []elastic.Member{{ID: other.ID()}, {ID: h.ID(), Addrs: outer}}, Voters: []elastic.ID{other.ID(), h.ID()}}
	kinds := make(chan string, 2)
	var connecting sync.WaitGroup
	for rank, h := range []*Host{other, h} {
		connecting.Go(func() {
			c, err := h.Connect(t.Context(), v, rank)
			if err != nil {
				t.Error(err)
				return
			}
			kinds <- c.(elastic.Pather).Path(1 - rank).Kind
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	connecting.Wait()
	for range len(kinds) {
		if kind := <-kinds; kind != "direct" {
			t.Errorf("path %s", kind)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.passed) != 2 {
		t.Errorf("the router has passed on connections to the ports %v, want libp2p's and the other one", g.passed)
	}
}

// A missing router, or a router that maps no ports, is reported once, and Mapped does not block.
func TestNoPortsMapped(t *testing.T) {
	for want, find := range map[error]func(context.Context) (gateway, error){
		errNoGateway: func(context.Context) (gateway, error) { return nil, errors.New("nobody answers") },
		errUnmapped:  func(context.Context) (gateway, error) { return &fakeGateway{t: t, refuses: true}, nil },
	} {
		h, told, end := mapping(t, find)
		before := len(h.Addrs())
		if err := h.Open([]string{"/ip4/0.0.0.0/tcp/0"}); err != nil {
			t.Fatal(err)
		}
		if err := <-told; !errors.Is(err, want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("told %v, want %v", err, want)
		}
		h.Mapped(t.Context())
		for _, a := range h.Addrs()[before-1:] {
			if strings.HasSuffix(a, "/tcp/0") {
				t.Errorf("told of %s", a)
			}
		}
		end()
		if len(told) != 0 {
			t.Errorf("told again: %v", <-told)
		}
	}
}

// A router that answers late is found soon after. Both results are reported.
func TestLateGateway(t *testing.T) {
	t.Parallel() // it waits
	searches := 0
	h, told, _ := mapping(t, func(context.Context) (gateway, error) {
		if searches++; searches < 3 {
			return nil, errors.New("nobody answers")
		}
		return &fakeGateway{t: t}, nil
	})
	if err := h.Open([]string{"/ip4/0.0.0.0/tcp/0"}); err != nil {
		t.Fatal(err)
	}
	first, patience := <-told, time.After(gatewayAgain/2)
	if !errors.Is(first, errNoGateway) {
		t.Errorf("told %v first", first)
	}
	select {
	case err := <-told:
		if err != nil {
			t.Errorf("told %v then", err)
		}
	case <-patience:
		t.Error("the router is not found")
	}
}

// A router that stops answering blocks no caller.
func TestGatewayHangs(t *testing.T) {
	const hangs = 20 * time.Second
	g := &fakeGateway{t: t, hang: make(chan struct{})}
	h, told, end := mapping(t, func(context.Context) (gateway, error) { return g, nil })
	if err := h.Open([]string{"/ip4/0.0.0.0/tcp/0"}); err != nil {
		t.Fatal(err)
	}
	<-told
	release := time.AfterFunc(hangs, func() { close(g.hang) })
	end()
	if !release.Stop() {
		t.Error("the end has waited for the router")
	} else {
		close(g.hang)
	}
	if n := len(h.listener.outerAddrs()); n != 0 {
		t.Errorf("%d addresses are left", n)
	}
}

// Only addresses that a router can forward to are mapped.
func TestMappable(t *testing.T) {
	for text, want := range map[string]bool{
		"0.0.0.0:7000": true, "192.168.1.2:7000": true, "[::ffff:192.168.1.2]:7000": true,
		"127.0.0.1:7000": false, "[::]:7000": false, "[2001:db8::1]:7000": false, "192.168.1.2:0": false,
	} {
		if got := isMappable(netip.MustParseAddrPort(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
