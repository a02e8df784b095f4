package direct

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// hostOf returns a Host with a key that is derived from a word, and the streams that it accepts.
func hostOf(word string) (*Host, <-chan taken) {
	came := make(chan taken, 1000)
	h := &Host{Admit: func(string) Refusal { return 0 }, Take: func(c *Conn, id string, kind byte) { came <- taken{c, id, kind} }}
	copy(h.Key[:], word)
	return h, came
}

// taken is an accepted stream.
type taken struct {
	*Conn
	id   string
	kind byte
}

// serving returns a port with a host key, and the streams that it accepts.
func serving(t testing.TB, key string) (*Port, <-chan taken) {
	t.Helper()
	p := opened(t)
	h, came := hostOf(key)
	p.ServeHost(h)
	return p, came
}

// next returns the next accepted stream, which the test closes.
func next(t testing.TB, came <-chan taken) taken {
	t.Helper()
	select {
	case c := <-came:
		t.Cleanup(func() { _ = c.Close() })
		return c
	case <-time.After(hang):
		t.Fatal("no stream came")
		return taken{}
	}
}

// dialled dials a stream within the host, which the test closes.
func dialled(t testing.TB, p *Port, to string, kind byte) *Conn {
	t.Helper()
	c, err := p.DialHost(within(t), to, kind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A stream within the host carries bytes in both directions, and says who opened it and of which
// kind it is.
func TestHostStream(t *testing.T) {
	keepsFiles(t)
	a, _ := serving(t, "key")
	b, came := serving(t, "key")
	out := dialled(t, a, b.id, 7)
	in := next(t, came)
	if in.id != a.id || in.kind != 7 || in.Kind() != "unix" {
		t.Errorf("stream of kind %d by %q over %s, want 7 by %q", in.kind, in.id, in.Kind(), a.id)
	}
	out.Sleep()
	if err := exchange(out, in.Conn); err != nil {
		t.Fatal(err)
	}
}

// Streams that arrive before the key wait for it.
func TestHostIsEarly(t *testing.T) {
	keepsFiles(t)
	a, _ := serving(t, "key")
	b := opened(t)
	h, came := hostOf("key")
	go func() {
		b.until(t, "there", func() bool { return len(b.local.socks) == 1 })
		b.ServeHost(h)
		b.ServeHost(nil) // has no effect
	}()
	dialled(t, a, b.id, 1)
	next(t, came)
}

// A process that never gets a key answers that it has none.
func TestHostNeverServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := Open(Config{})
		if err != nil {
			t.Fatal(err)
		}
		near, far := net.Pipe()
		if !p.addStranger(far) {
			t.Fatal("closed")
		}
		go p.receiveHost(far, [numberSize]byte{})
		got := make([]byte, proofSize)
		_, err = near.Write(append([]byte{1, 1, 'a'}, make([]byte, proofSize)...))
		if err == nil {
			_, err = io.ReadFull(near, got)
		}
		if err != nil || !slices.Equal(got, make([]byte, proofSize)) {
			t.Errorf("answered %x, %v", got, err)
		}
		if err := errors.Join(near.Close(), p.Close()); err != nil {
			t.Error(err)
		}
	})
}

func TestHostDialErrors(t *testing.T) {
	ctx := within(t)
	a, _ := serving(t, "key")
	if _, err := a.DialHost(ctx, rand.Text(), 1); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("to an absent process: %v", err)
	}
	if _, err := opened(t).DialHost(ctx, a.id, 1); !errors.Is(err, ErrNoKey) {
		t.Errorf("without a key: %v, want %v", err, ErrNoKey)
	}
	if _, err := Open(Config{ID: a.id}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listened under the ID of another: %v", err)
	}
	if _, err := Open(Config{ID: strings.Repeat("x", 200)}); err == nil {
		t.Error("listened under an ID that is too long")
	}
}

// If the keys differ the dialler learns it at once.
func TestHostWrongKey(t *testing.T) {
	keepsFiles(t)
	a, _ := serving(t, "one key")
	b, came := serving(t, "another key")
	if _, err := a.DialHost(within(t), b.id, 1); !errors.Is(err, ErrProof) {
		t.Errorf("%v, want %v", err, ErrProof)
	}
	if len(came) > 0 {
		t.Error("the stream was taken in")
	}
}

// Each refusal has an error of its own, which only a holder of the key can cause.
func TestHostRefuses(t *testing.T) {
	keepsFiles(t)
	a, _ := serving(t, "key")
	for _, want := range []Refusal{Unknown, Banned} {
		b := opened(t)
		h, came := hostOf("key")
		h.Admit = func(id string) Refusal {
			if id != a.id {
				t.Errorf("asked about %q, want %q", id, a.id)
			}
			return want
		}
		b.ServeHost(h)
		if _, err := a.DialHost(within(t), b.id, 1); !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
		if len(came) > 0 {
			t.Error("a stream that was refused was taken")
		}
	}
}

// claimOf returns the claim of a process.
func claimOf(kind byte, id string) string { return string([]byte{kind, byte(len(id))}) + id }

// A process that listens under the ID of another one cannot answer without the key.
func TestHostImpostor(t *testing.T) {
	h, _ := hostOf("key")
	other, _ := hostOf("another key")
	for name, answer := range map[string]func(t *Ticket, to string, proof []byte) []byte{
		"no proof": func(*Ticket, string, []byte) []byte { return make([]byte, proofSize) },
		"another key": func(t *Ticket, to string, _ []byte) []byte {
			k := other.ticket(t.Number, t.claim, to)
			return k.proof(waitLabel)
		},
		"an answer to another stream": func(t *Ticket, to string, _ []byte) []byte {
			k := h.ticket(NewTicket().Number, t.claim, to)
			return k.proof(waitLabel)
		},
		"the dialler's own proof": func(_ *Ticket, _ string, proof []byte) []byte { return proof },
	} {
		t.Run(name, func(t *testing.T) {
			keepsFiles(t)
			a, _ := serving(t, "key")
			id := rand.Text()
			l, err := net.Listen("unix", UnixTarget(id).Addr)
			if err != nil {
				t.Fatal(err)
			}
			var working sync.WaitGroup
			t.Cleanup(working.Wait)
			t.Cleanup(func() { _ = l.Close() })
			working.Go(func() {
				sock, err := l.Accept()
				if err != nil {
					return
				}
				defer sock.Close()
				b := make([]byte, greetingSize+2+len(a.id)+proofSize)
				if _, err := io.ReadFull(sock, b); err != nil {
					t.Error(err)
				}
				said := Ticket{Number: [numberSize]byte(b), claim: claimOf(1, a.id)}
				_, _ = sock.Write(answer(&said, id, b[len(b)-proofSize:]))
			})
			if _, err := a.DialHost(within(t), id, 1); !errors.Is(err, ErrProof) {
				t.Errorf("%v, want %v", err, ErrProof)
			}
		})
	}
}

// A greeting that differs in any part from what its proof covers opens no stream, and its answer
// reveals nothing.
func TestHostGreetingRefused(t *testing.T) {
	keepsFiles(t)
	b, came := serving(t, "key")
	h, _ := hostOf("key")
	greet := func(kind byte, to string) []byte {
		k := h.ticket(NewTicket().Number, claimOf(kind, "somebody"), to)
		return append(greeting(&k, 0, 1), k.proof(dialLabel)...)
	}
	good := greet(1, b.id)
	kind, number := slices.Clone(good), slices.Clone(good)
	kind[greetingSize]++
	number[0]++
	for name, say := range map[string][]byte{
		"nothing": {}, "half": good[:len(good)/2], "another kind": kind, "another number": number,
		"for another process": greet(1, "another"), "no proof": append(slices.Clone(good[:len(good)-proofSize]), make([]byte, proofSize)...),
	} {
		s := sockets(t, UnixTarget(b.id), 1)[0]
		if _, err := s.Write(say); err != nil {
			t.Fatal(err)
		}
		_ = s.(*net.UnixConn).CloseWrite()
		_ = s.SetReadDeadline(time.Now().Add(hang))
		got, err := io.ReadAll(s)
		if err != nil || len(slices.DeleteFunc(got, func(x byte) bool { return x == 0 })) > 0 {
			t.Errorf("%s: answered %x, %v", name, got, err)
		}
		_ = s.Close()
	}
	if len(came) > 0 {
		t.Error("a stream was taken in")
	}
}

// FuzzHost checks that arbitrary bytes of a process without the key never open a stream.
func FuzzHost(f *testing.F) {
	f.Add([]byte("\x01\x01a"))
	f.Add([]byte("\x00\xff"))
	f.Fuzz(func(t *testing.T, said []byte) {
		p, err := Open(Config{})
		if err != nil {
			t.Fatal(err)
		}
		h, came := hostOf("key")
		p.id = "b"
		p.ServeHost(h)
		ours, theirs := net.Pipe()
		if !p.addStranger(theirs) {
			t.Fatal("closed")
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = ours.Write(append(said, make([]byte, proofSize)...))
			_ = ours.Close()
		}()
		p.receiveHost(theirs, [numberSize]byte{})
		<-done
		if err := p.Close(); err != nil || len(came) > 0 || len(p.remote.socks) > 0 {
			t.Errorf("%d streams, %d strangers, %v", len(came), len(p.remote.socks), err)
		}
	})
}

// Many streams at the same time are all accepted.
func TestHostManyAtOnce(t *testing.T) {
	keepsFiles(t)
	const n = 300
	a, _ := serving(t, "key")
	b, came := serving(t, "key")
	var dials sync.WaitGroup
	for range n {
		dials.Go(func() {
			c, err := a.DialHost(within(t), b.id, 1)
			if err != nil {
				t.Error(err)
				return
			}
			_ = c.Close()
		})
	}
	dials.Wait()
	for range n {
		next(t, came) // a dialler may learn that it is admitted before the stream is here
	}
}

// A killed process leaves no socket name behind, and its streams end.
func TestKilledLeavesNothing(t *testing.T) {
	const variable = "ELRUN_TEST_HOST"
	if id := os.Getenv(variable); id != "" {
		p, err := Open(Config{ID: id})
		if err != nil {
			t.Fatal(err)
		}
		h, _ := hostOf("key")
		p.ServeHost(h)
		fmt.Println("listening")
		select {} // until it is killed
	}
	a, _ := serving(t, "key")
	id := rand.Text()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestKilledLeavesNothing$")
	cmd.Env = append(os.Environ(), variable+"="+id)
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	word := make([]byte, len("listening"))
	if _, err := io.ReadFull(stdout, word); err != nil {
		t.Fatal(err)
	}
	c := dialled(t, a, id, 1)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	ended(t, c.sock)
	_ = cmd.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	if _, err := a.DialHost(ctx, id, 1); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial of a killed process: %v", err)
	}
}
