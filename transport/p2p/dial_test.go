package p2p

import (
	"context"
	"errors"
	"testing"

	"github.com/elrun/elrun/elastic"
)

// strangersTo starts two hosts. The first has a wrong address of the second, at which no process
// answers.
func strangersTo(t *testing.T) (h, other *Host) {
	t.Helper()
	var hs [2]*Host
	for i := range hs {
		var err error
		if hs[i], err = Listen(t.Context(), Config{Job: "test", ListenAddrs: []string{"/ip4/127.0.0.1/tcp/0"}}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = hs[i].Close() })
	}
	err := errors.Join(hs[0].Introduce([]elastic.Member{{ID: hs[1].ID(), Addrs: []string{Mute(t)}}}),
		hs[1].Introduce([]elastic.Member{{ID: hs[0].ID(), Addrs: hs[0].Addrs()}}))
	if err != nil {
		t.Fatal(err)
	}
	return hs[0], hs[1]
}

// A dial without an answer ends when the peer connects with this host.
func TestReachByOther(t *testing.T) {
	h, other := strangersTo(t)
	id, err := idOf(string(other.ID()))
	if err != nil {
		t.Fatal(err)
	}
	reached := make(chan error)
	for range 2 {
		go func() { reached <- h.dialer.reach(t.Context(), id) }()
	}
	if err := other.Send(t.Context(), h.ID(), []byte("hello")); err != nil {
		t.Fatal(err)
	}
	<-h.Events() // the other is up
	h.dialer.mu.Lock()
	if len(h.dialer.dials) > 0 {
		t.Error("an attempt to connect goes on beside a connection")
	}
	h.dialer.mu.Unlock()
	for range 2 {
		if err := <-reached; err != nil {
			t.Error(err)
		}
	}
}

// An attempt ends when its last caller leaves, and when the host closes.
func TestReachGivenUp(t *testing.T) {
	h, other := strangersTo(t)
	id, err := idOf(string(other.ID()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	reached := make(chan error)
	go func() { reached <- h.dialer.reach(ctx, id) }()
	cancel()
	if err := <-reached; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	h.dialer.mu.Lock()
	if len(h.dialer.dials) > 0 {
		t.Errorf("%d attempts are left", len(h.dialer.dials))
	}
	h.dialer.mu.Unlock()
	go func() { reached <- h.dialer.reach(t.Context(), id) }()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if err := <-reached; err == nil {
		t.Error("a closed host has reached another")
	}
}
