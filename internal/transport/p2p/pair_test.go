package p2p

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/internal/wire"
)

// piped is a line in memory, so that it can be waited for in virtual time.
type piped struct{ net.Conn }

func (p piped) Reset() error { return p.Close() }

// pipedPair returns the transport of rank 0 of two, and what the other has of their lines.
func pipedPair() (*Transport, [streamsPerPair]net.Conn) {
	v := elastic.View{Members: []elastic.Member{{ID: "a"}, {ID: "b"}}}
	streams := make([][streamsPerPair]link, 2)
	var far [streamsPerPair]net.Conn
	for i := range far {
		var near net.Conn
		near, far[i] = net.Pipe()
		streams[1][i] = link{line: piped{near}}
	}
	return newTransport(make(chan struct{}), &attempt{view: v, streams: streams}, nil), far
}

// lateWord is what the other side does on its urgent stream some time after the data stream
// broke, and what this one must say then or later.
type lateWord struct {
	act        func(urgent net.Conn) error
	acts, told time.Duration
	want       string
	blames     bool // the other
}

// When the data stream breaks the urgent one has a while to tell why. A peer whose urgent
// stream stays open in silence, as it is stopped or cut off, is lost after that.
func TestVerdict(t *testing.T) {
	cause := collective.EncodeCause(1, errors.New("it was the third"))
	revoke := func(c net.Conn) error {
		_, err := c.Write(frame(wire.Header{Kind: wire.Revoke, Length: uint64(len(cause))}, string(cause)))
		return err
	}
	nothing := func(net.Conn) error { return nil }
	for name, w := range map[string]lateWord{
		"silent":        {nothing, time.Second, verdictTime, "connection closed", true},
		"ends":          {net.Conn.Close, time.Second, time.Second, "connection closed", true},
		"tells at last": {revoke, verdictTime - 1, verdictTime - 1, "it was the third", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { w.check(t) })
		})
	}
}

func (w lateWord) check(t *testing.T) {
	e, far := pipedPair()
	begun := time.Now()
	if err := far[dataStream].Close(); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(w.acts, func() {
		if err := w.act(far[urgentStream]); err != nil {
			t.Error(err)
		}
	})
	err := e.Recv(t.Context(), 1, collective.Envelope{}, nil)
	var lost *collective.PeerError
	if blames := errors.As(err, &lost) && lost.Rank == 1; blames != w.blames || !strings.Contains(fmt.Sprint(err), w.want) {
		t.Errorf("got %v, want %q", err, w.want)
	}
	if took := time.Since(begun); took != w.told {
		t.Errorf("it took %v, want %v", took, w.told)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
