package simnet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/transport/mesh"
)

// streams is a network without a session protocol. taken has, for each member, the streams that
// other members have opened to it.
type streams struct {
	*Network
	t     testing.TB
	taken map[elastic.ID]chan *stream
}

// newStreams returns a network whose members have no session protocol. The end of the test closes it.
func newStreams(t testing.TB, c Config, ids ...elastic.ID) *streams {
	n := &streams{Network: New(c), t: t, taken: make(map[elastic.ID]chan *stream)}
	for _, id := range ids {
		taken := make(chan *stream, 100)
		n.taken[id] = taken
		m := n.node(elastic.Member{ID: id})
		m.Handle(func(_ mesh.Kind, s mesh.Stream) { taken <- s.(*stream) })
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// open opens a stream from a to b and returns both sides.
func (n *streams) open(k mesh.Kind) (a, b *stream) {
	n.t.Helper()
	s, err := n.find("a").Open(n.t.Context(), "b", k)
	if err != nil {
		n.t.Fatal(err)
	}
	return s.(*stream), <-n.taken["b"]
}

// begun runs f in a goroutine, and returns a channel for the result.
func begun(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

// pass waits for a duration of virtual time.
func pass(d time.Duration) { <-time.After(d) }

// pattern returns bytes with different values at neighbouring positions.
func pattern(size int) []byte {
	out := make([]byte, size)
	for i := range out {
		out[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return out
}

// inBubble runs f in a synctest bubble with a network of a and b.
func inBubble(t *testing.T, c Config, f func(t *testing.T, n *streams)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newStreams(t, c, "a", "b")) })
}

// All written bytes can be read, in both directions.
func TestStreamCarries(t *testing.T) {
	for k := range mesh.Kinds {
		inBubble(t, Config{Link: Link{Delay: time.Millisecond, Lag: 5 * time.Millisecond}}, func(t *testing.T, n *streams) {
			a, b := n.open(k)
			want := pattern(3<<20 + 5)
			wrote := begun(func() error {
				_, err := a.Write(want)
				return errors.Join(err, a.CloseWrite())
			})
			got, err := io.ReadAll(b)
			if err = errors.Join(err, <-wrote); err != nil || !bytes.Equal(got, want) {
				t.Errorf("kind %d: %d bytes, %v", k, len(got), err)
			}
			if _, err := b.Write([]byte("back")); err != nil {
				t.Error(err)
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			if got, err := io.ReadAll(a); err != nil || string(got) != "back" {
				t.Errorf("kind %d, the way back: %q, %v", k, got, err)
			}
			if len(n.find("a").streams)+len(n.find("b").streams) > 0 {
				t.Error("a stream that has ended is kept")
			}
		})
	}
}

// near checks that got differs from want by at most a few percent.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > want/30 {
		t.Errorf("%s: %.4g, want %.4g", what, got, want)
	}
}

// The throughput of a link equals its bandwidth with any delay, independently in each direction.
func TestStreamBandwidth(t *testing.T) {
	for _, delay := range []time.Duration{0, time.Millisecond, 200 * time.Millisecond} {
		inBubble(t, Config{Link: Link{Delay: delay, Bandwidth: 12_500_000}}, func(t *testing.T, n *streams) {
			a, b := n.open(mesh.Data)
			start := time.Now()
			var done []<-chan error
			for _, s := range []*stream{a, b} {
				done = append(done, begun(func() error {
					_, err := s.Write(make([]byte, 25_000_000))
					return err
				}), begun(func() error {
					_, err := io.ReadFull(s, make([]byte, 25_000_000))
					return err
				}))
			}
			for _, d := range done {
				if err := <-d; err != nil {
					t.Error(err)
				}
			}
			near(t, "seconds", time.Since(start).Seconds(), 2+delay.Seconds())
		})
	}
}

// Streams of one link share its bandwidth. Planes with bandwidths of their own do not share.
func TestStreamBandwidthShared(t *testing.T) {
	tests := map[string]struct {
		limit func(n *streams)
		want  float64
	}{
		"shared": {func(n *streams) { n.SetLink(Any, Any, Link{Bandwidth: 1 << 20}) }, 2},
		"apart": {func(n *streams) {
			n.SetLink(Any, Any, Link{Bandwidth: 1 << 20}, Bulk)
			n.SetLink(Any, Any, Link{Bandwidth: 1 << 20}, Data)
		}, 1},
		"one way only": {func(n *streams) { n.SetLink("a", Any, Link{Bandwidth: 1 << 20}) }, 2},
		"changed meanwhile": {func(n *streams) {
			n.SetLink(Any, Any, Link{Bandwidth: 1 << 10})
			time.AfterFunc(time.Second/2, func() { n.SetLink(Any, Any, Link{}) })
		}, 0.5},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Config{}, func(t *testing.T, n *streams) {
				var done []<-chan error
				test.limit(n)
				start := time.Now()
				for _, k := range []mesh.Kind{mesh.Data, mesh.Bulk} {
					a, b := n.open(k)
					done = append(done, begun(func() error {
						_, err := a.Write(make([]byte, 1<<20))
						return err
					}), begun(func() error {
						_, err := io.ReadFull(b, make([]byte, 1<<20))
						return err
					}))
				}
				for _, d := range done {
					if err := <-d; err != nil {
						t.Error(err)
					}
				}
				near(t, "seconds", time.Since(start).Seconds(), test.want)
			})
		})
	}
}

// A stream accepts no more than the window while the peer does not read. If the peer has read the
// bytes but a cut holds back the acknowledgement, the stream accepts more when the cut is healed.
func TestStreamWindow(t *testing.T) {
	inBubble(t, Config{Window: 10_000}, func(t *testing.T, n *streams) {
		a, b := n.open(mesh.Data)
		if err := a.SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Error(err)
		}
		wrote, err := a.Write(pattern(30_000))
		if wrote < 9_000 || wrote > 10_000 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes were taken in, %v", wrote, err)
		}
		n.Cut("b", "a") // acknowledgements of b are lost
		if _, err := io.ReadFull(b, make([]byte, wrote)); err != nil {
			t.Error(err)
		}
		if err := a.SetWriteDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Error(err)
		}
		if more, err := a.Write(make([]byte, 10_000)); more > 1000 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes were taken in over a cut, %v", more, err)
		}
		n.Heal()
		if err := a.SetWriteDeadline(time.Time{}); err != nil {
			t.Error(err)
		}
		if more, err := a.Write(make([]byte, 9_000)); more != 9_000 || err != nil {
			t.Errorf("%d bytes after healing, %v", more, err)
		}
	})
}

// busy reads a byte at both sides, and writes at both sides until the window is full.
func busy(a, b *stream) map[string]<-chan error {
	ends := make(map[string]<-chan error)
	for who, s := range map[string]*stream{"a": a, "b": b} {
		ends[who+" reads"] = begun(func() error { _, err := s.Read(make([]byte, 1)); return err })
		ends[who+" writes"] = begun(func() (err error) {
			for err == nil {
				_, err = s.Write(make([]byte, 100_000))
			}
			return err
		})
	}
	return ends
}

// Each way to end a stream, and the death of a member, ends the waiting reads and writes at both
// sides, at the expected time.
func TestStreamEnds(t *testing.T) {
	const delay = 10 * time.Millisecond
	tests := map[string]struct {
		act  func(n *streams, a *stream)
		took time.Duration // time until the other side sees the end
		want error
	}{
		"reset":         {func(_ *streams, a *stream) { _ = a.Reset() }, delay, mesh.ErrReset},
		"hung up":       {func(n *streams, _ *stream) { n.find("a").HangUp("b") }, delay, mesh.ErrReset},
		"killed":        {func(n *streams, _ *stream) { n.Kill("a") }, delay + time.Millisecond, mesh.ErrReset},
		"closed":        {func(n *streams, _ *stream) { _ = n.find("a").Close() }, delay + time.Millisecond, io.EOF},
		"between":       {func(n *streams, _ *stream) { n.Reset("a", "b") }, 0, mesh.ErrReset},
		"stopped, then": {func(n *streams, _ *stream) { n.Stop("a"); n.Kill("a") }, delay + time.Millisecond, mesh.ErrReset},
	}
	for name, test := range tests {
		for _, cut := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", cut: ", cut), func(t *testing.T) {
				inBubble(t, Config{Link: Link{Delay: delay}}, func(t *testing.T, n *streams) {
					a, b := n.open(mesh.Urgent)
					ends := busy(a, b)
					synctest.Wait()
					if <-ends["a reads"] != nil || <-ends["b reads"] != nil {
						t.Error("nothing came")
					}
					start := time.Now()
					if cut {
						n.Cut("a", "b")
					}
					test.act(n, a)
					if err := <-ends["a writes"]; err == nil || time.Since(start) > 0 {
						t.Errorf("a wrote on until %v: %v", time.Since(start), err)
					}
					if cut && name != "between" {
						pass(time.Hour)
						if len(ends["b writes"]) > 0 {
							t.Error("the end came over a cut")
						}
						start = time.Now()
						n.Heal()
						test.took = 0
					}
					if err := <-ends["b writes"]; !errors.Is(err, mesh.ErrReset) || time.Since(start) != test.took && !cut {
						t.Errorf("b wrote on for %v: %v", time.Since(start), err)
					}
					if _, err := io.Copy(io.Discard, b); test.want == io.EOF && err != nil || test.want != io.EOF && !errors.Is(err, test.want) {
						t.Errorf("b read %v, want %v", err, test.want)
					}
				})
			})
		}
	}
}

// If a deadline ends a Read, the stream can still be read later.
func TestStreamReadDeadline(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, n *streams) {
		a, b := n.open(mesh.Data)
		start := time.Now()
		for _, d := range []time.Duration{-time.Hour, time.Second} {
			if err := b.SetReadDeadline(time.Now().Add(d)); err != nil {
				t.Error(err)
			}
			if _, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("deadline in %v: %v", d, err)
			}
		}
		if d := time.Since(start); d != time.Second {
			t.Errorf("waited for %v", d)
		}
		if err := b.SetReadDeadline(time.Time{}); err != nil {
			t.Error(err)
		}
		reading := begun(func() error { _, err := b.Read(make([]byte, 1)); return err })
		synctest.Wait()
		if err := b.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Error(err)
		}
		if err := <-reading; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("ended meanwhile: %v", err)
		}
		if _, err := a.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		if err := b.SetReadDeadline(time.Time{}); err != nil {
			t.Error(err)
		}
		if _, err := b.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
	})
}

// A stopped member does not read, write or accept streams. Its deadlines do not pass.
func TestStreamOfStopped(t *testing.T) {
	inBubble(t, Config{Window: 10_000}, func(t *testing.T, n *streams) {
		a, b := n.open(mesh.Data)
		n.Stop("b")
		if err := errors.Join(b.SetWriteDeadline(time.Now().Add(time.Second)), b.SetReadDeadline(time.Now().Add(time.Second))); err != nil {
			t.Error(err)
		}
		wrote := begun(func() error { _, err := b.Write([]byte("x")); return err })
		read := begun(func() error { _, err := b.Read(make([]byte, 1)); return err })
		opened := begun(func() error { _, err := n.find("a").Open(t.Context(), "b", mesh.Data); return err })
		if _, err := a.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		pass(time.Hour)
		if len(wrote)+len(read)+len(opened) > 0 {
			t.Error("a stopped member works")
		}
		n.Continue("b")
		if err := errors.Join(<-wrote, <-read, <-opened); err != nil {
			t.Error(err)
		}
		n.Stop("b")
		read = begun(func() error { _, err := b.Read(make([]byte, 1)); return err })
		synctest.Wait()
		if err := b.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Error(err)
		}
		if err := <-read; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("given up: %v", err)
		}
	})
}

// A stream ends before or while its member is stopped. The reader gets the end when the member
// continues.
func TestStreamEndsWhileStopped(t *testing.T) {
	for _, before := range []bool{false, true} {
		inBubble(t, Config{}, func(t *testing.T, n *streams) {
			a, b := n.open(mesh.Data)
			end := func() {
				if err := errors.Join(a.CloseWrite(), b.CloseWrite()); err != nil {
					t.Error(err)
				}
				synctest.Wait()
			}
			if before {
				end()
			}
			n.Stop("b")
			read := begun(func() error { _, err := io.ReadAll(b); return err })
			synctest.Wait()
			if !before {
				end()
			}
			n.Continue("b")
			if err := <-read; err != nil {
				t.Error(err)
			}
		})
	}
}

// A stream that the reader has closed does not block the writer.
func TestStreamClosed(t *testing.T) {
	inBubble(t, Config{Window: 10_000}, func(t *testing.T, n *streams) {
		a, b := n.open(mesh.Data)
		if _, err := a.Write(make([]byte, 10_000)); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if _, err := a.Write(make([]byte, 100_000)); err != nil {
			t.Error(err)
		}
		if _, err := b.Read(make([]byte, 1)); err == nil || err == io.EOF {
			t.Errorf("read from a closed stream: %v", err)
		}
	})
}

// HangUp ends a stream that is still being opened. It does not end data streams, which have connections of their own.
func TestHangUp(t *testing.T) {
	inBubble(t, Config{}, func(t *testing.T, n *streams) {
		n.Cut("a", "b")
		n.Cut("b", "a")
		opened := begun(func() error { _, err := n.find("a").Open(t.Context(), "b", mesh.Control); return err })
		synctest.Wait()
		n.find("a").HangUp("b")
		n.Heal()
		if err := <-opened; err == nil {
			t.Error("a stream that is being opened outlives the connection")
		}
		a, b := n.open(mesh.Data)
		n.find("a").HangUp("b")
		n.find("b").HangUp("a")
		if _, err := a.Write([]byte("x")); err != nil {
			t.Error(err)
		}
		if _, err := b.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
	})
}

// Open waits for a member that does not exist yet, and fails for a member that has died.
func TestStreamOpen(t *testing.T) {
	inBubble(t, Config{Link: Link{Delay: time.Second}}, func(t *testing.T, n *streams) {
		a := n.find("a")
		open := func(to elastic.ID) error { _, err := a.Open(t.Context(), to, mesh.Control); return err }
		if open("a") == nil {
			t.Error("to itself")
		}
		late := begun(func() error { return open("late") })
		pass(time.Hour)
		n.node(elastic.Member{ID: "late"}).Handle(func(mesh.Kind, mesh.Stream) {})
		if err := <-late; err != nil {
			t.Errorf("to one that came late: %v", err)
		}
		n.Stop("b")
		stopped := begun(func() error { return open("b") })
		pass(time.Hour)
		n.Kill("b")
		start := time.Now()
		if err := <-stopped; !errors.Is(err, elastic.ErrGone) {
			t.Errorf("to one that died before it had taken the stream: %v", err)
		}
		if err := open("b"); !errors.Is(err, elastic.ErrGone) || time.Since(start) != 3*time.Second {
			t.Errorf("to the dead, after %v: %v", time.Since(start), err)
		}
	})
}
