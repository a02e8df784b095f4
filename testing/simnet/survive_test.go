package simnet

import (
	"bytes"
	"fmt"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/mesh"
)

// way is one direction of a stream under test, with all bytes to write and the number of bytes
// read.
type way struct {
	from, to *stream
	written  []byte
	read     int
}

// fault draws one action on a network of a and b.
func fault(rt *rapid.T) func(n *Network) {
	x, y := rapid.SampledFrom([]elastic.ID{Any, "a", "b"}).Draw(rt, "from"), rapid.SampledFrom([]elastic.ID{"a", "b"}).Draw(rt, "to")
	planes := rapid.SampledFrom([][]Plane{nil, {Data}, {Control}, {Bulk}}).Draw(rt, "planes")
	link := Link{
		Delay:     time.Duration(rapid.IntRange(0, 100).Draw(rt, "delay")) * time.Millisecond,
		Lag:       time.Duration(rapid.IntRange(0, 100).Draw(rt, "lag")) * time.Millisecond,
		Bandwidth: rapid.SampledFrom([]int{0, 10_000, 1_000_000}).Draw(rt, "bandwidth"),
	}
	return rapid.SampledFrom([]func(n *Network){
		func(n *Network) { n.Cut(x, y, planes...) },
		func(n *Network) { n.Mend(x, y, planes...) },
		func(n *Network) { n.Stop(y) },
		func(n *Network) { n.Continue(y) },
		func(n *Network) { n.Partition([]elastic.ID{y}) },
		func(n *Network) { n.Heal() },
		func(n *Network) { n.SetLink(x, y, link, planes...) },
	}).Draw(rt, "fault")
}

// carry writes pieces of the given sizes, and reads pieces of at most by bytes until the end of the
// stream.
func (w *way) carry(sizes []int, by int) []<-chan error {
	for _, size := range sizes {
		for i := range size {
			w.written = append(w.written, byte(len(w.written)^i))
		}
	}
	write := begun(func() error {
		at := 0
		for _, size := range sizes {
			if n, err := w.from.Write(w.written[at : at+size]); n != size || err != nil {
				return fmt.Errorf("wrote %d of %d bytes: %w", n, size, err)
			}
			at += size
			pass(20 * time.Millisecond)
		}
		return w.from.CloseWrite()
	})
	read := begun(func() error {
		buf := make([]byte, by)
		for {
			n, err := w.to.Read(buf)
			if !bytes.Equal(buf[:n], w.written[w.read:w.read+n]) {
				return fmt.Errorf("byte %d or one of the %d after it differs from the written one", w.read, n)
			}
			w.read += n
			switch {
			case err == io.EOF && w.read == len(w.written):
				return nil
			case err != nil:
				return fmt.Errorf("after %d of %d bytes: %w", w.read, len(w.written), err)
			}
		}
	})
	return []<-chan error{write, read}
}

// When all faults have ended, every stream has delivered the written bytes, once and in order, and
// then its end.
func TestStreamsSurvive(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed, window := rapid.Uint64().Draw(rt, "seed"), rapid.SampledFrom([]int{1, 1000, 20_000}).Draw(rt, "window")
		var faults []func(n *Network)
		var pauses []time.Duration
		for range rapid.IntRange(0, 15).Draw(rt, "faults") {
			faults = append(faults, fault(rt))
			pauses = append(pauses, time.Duration(rapid.IntRange(0, 300).Draw(rt, "pause"))*time.Millisecond)
		}
		sizes := rapid.SliceOfN(rapid.IntRange(0, 5000), 0, 20).Draw(rt, "writes")
		by := rapid.IntRange(1, 4000).Draw(rt, "reads")
		var errs []error
		synctest.Test(t, func(t *testing.T) {
			n := newStreams(t, Config{Seed: seed, Window: window, Backoff: time.Second}, "a", "b")
			var done []<-chan error
			for k := range mesh.Kinds {
				a, b := n.open(k)
				done = append(done, (&way{from: a, to: b}).carry(sizes, by)...)
				done = append(done, (&way{from: b, to: a}).carry(sizes, by)...)
			}
			for i, f := range faults {
				f(n.Network)
				pass(pauses[i])
			}
			n.Heal()
			n.Continue("a")
			n.Continue("b")
			for _, d := range done {
				errs = append(errs, <-d)
			}
		})
		for _, err := range errs {
			if err != nil {
				rt.Error(err)
			}
		}
	})
}
