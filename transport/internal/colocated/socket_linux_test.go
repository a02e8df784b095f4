package colocated

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// unique returns an ID that contains the test and the process, because all processes of a host share the names of sockets.
func unique(t testing.TB, name string) string {
	t.Helper()
	return fmt.Sprintf("%s-%d-%.20s", name, os.Getpid(), t.Name())
}

func TestStreamCarriesBothWays(t *testing.T) {
	ctx := within(t)
	a, _ := serving(t, unique(t, "a"), "key")
	b, came := serving(t, unique(t, "b"), "key")
	out, err := a.Dial(ctx, b.id, 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(out, "hello"); err != nil {
		t.Fatal(err)
	}
	in := next(t, came)
	if in.Peer() != a.id || in.Kind() != 7 {
		t.Errorf("stream of kind %d by %q, want 7 by %q", in.Kind(), in.Peer(), a.id)
	}
	buf := make([]byte, 5)
	if _, err := io.ReadFull(in, buf); err != nil || string(buf) != "hello" {
		t.Fatalf("read %q, %v", buf, err)
	}
	if _, err := io.WriteString(in, "world"); err != nil {
		t.Fatal(err)
	}
	if err := in.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(out); err != nil || string(got) != "world" {
		t.Fatalf("read %q, %v", got, err)
	}
}

// Connections that arrive before the key wait in the socket's queue, and lose no bytes.
func TestDialBeforeServe(t *testing.T) {
	a, _ := serving(t, unique(t, "a"), "key")
	b := listening(t, unique(t, "b"))
	out, err := a.Dial(within(t), b.id, 1)
	if err != nil {
		t.Fatal(err)
	}
	came := make(chan *Stream, 1)
	b.Serve(keyOf("key"), taking(came))
	next(t, came)
	if err := out.Confirm(); err != nil {
		t.Fatal(err)
	}
}

func TestDialErrors(t *testing.T) {
	ctx := within(t)
	a, _ := serving(t, unique(t, "a"), "key")
	if _, err := a.Dial(ctx, unique(t, "nobody"), 1); !errors.Is(err, ErrAbsent) {
		t.Errorf("to an absent process: %v, want %v", err, ErrAbsent)
	}
	if _, err := a.Dial(ctx, strings.Repeat("x", MaxID+1), 1); !errors.Is(err, ErrAbsent) {
		t.Errorf("to an ID that is too long: %v, want %v", err, ErrAbsent)
	}
	if _, err := listening(t, unique(t, "b")).Dial(ctx, a.id, 1); !errors.Is(err, ErrNotServing) {
		t.Errorf("without a key: %v, want %v", err, ErrNotServing)
	}
	if _, err := Listen(strings.Repeat("x", MaxID+1)); err == nil {
		t.Error("listened under an ID that is too long")
	}
	if _, err := Listen(a.id); err == nil {
		t.Error("listened under the ID of another")
	}
}

// If the keys differ, the dialler gets an error, so that it uses libp2p at once. The answer reveals neither key.
func TestWrongKey(t *testing.T) {
	a, _ := serving(t, unique(t, "a"), "one key")
	b, came := serving(t, unique(t, "b"), "another key")
	out, err := a.Dial(within(t), b.id, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := out.Confirm(); !errors.Is(err, ErrKey) {
		t.Errorf("confirm: %v, want %v", err, ErrKey)
	}
	if _, err := out.Read(make([]byte, 1)); !errors.Is(err, ErrKey) {
		t.Errorf("read after that: %v, want %v", err, ErrKey)
	}
	if len(came) > 0 {
		t.Error("the stream was taken in")
	}
}

// impostor listens under the ID of another process and sends arbitrary answers.
func impostor(t *testing.T, id string, answer func(b *[helloSize]byte) [answerSize]byte) {
	t.Helper()
	l, err := net.Listen("unix", "@"+nameOf(id))
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
		var b [helloSize]byte
		if _, err := io.ReadFull(sock, b[:]); err == nil {
			a := answer(&b)
			_, _ = sock.Write(append(a[:], "lies"...))
		}
	})
}

func TestImpostorIsRefused(t *testing.T) {
	key := keyOf("key")
	answers := map[string]func(b *[helloSize]byte) [answerSize]byte{
		"no proof":     func(*[helloSize]byte) (a [answerSize]byte) { return a },
		"another key":  func(b *[helloSize]byte) [answerSize]byte { k := keyOf("other"); return encodeAnswer(&k, b, 0) },
		"an old hello": func(*[helloSize]byte) [answerSize]byte { return encodeAnswer(&key, &[helloSize]byte{}, 0) },
		"the dialler's own proof": func(b *[helloSize]byte) (a [answerSize]byte) {
			copy(a[4:], b[helloSigned:])
			return a
		},
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			id := unique(t, "victim")
			impostor(t, id, answer)
			a, _ := serving(t, unique(t, "a"), "key")
			out, err := a.Dial(within(t), id, 1)
			if err != nil {
				t.Fatal(err)
			}
			if n, err := out.Read(make([]byte, 10)); n > 0 || !errors.Is(err, ErrKey) {
				t.Errorf("read %d bytes, %v, want %v", n, err, ErrKey)
			}
		})
	}
}

// ask connects to a socket, writes bytes and returns the answer.
func ask(t *testing.T, id string, say []byte) []byte {
	t.Helper()
	sock, err := net.Dial("unix", "@"+nameOf(id))
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	if _, err := sock.Write(say); err != nil {
		t.Fatal(err)
	}
	_ = sock.(*net.UnixConn).CloseWrite()
	_ = sock.SetReadDeadline(time.Now().Add(hang))
	got, err := io.ReadAll(sock)
	if err != nil && !strings.Contains(err.Error(), "reset") {
		t.Fatal(err)
	}
	return got
}

func TestReplayIsRefused(t *testing.T) {
	key := keyOf("key")
	b, came := listening(t, unique(t, "b")), new(atomic.Int64)
	b.Serve(key, counting(came))
	hello := (&hello{kind: 1, from: "somebody", to: b.id, number: 5}).encode(&key)
	if got := ask(t, b.id, hello[:]); len(got) != answerSize || came.Load() != 1 {
		t.Fatalf("answered %x, %d streams came", got, came.Load())
	}
	if got := ask(t, b.id, hello[:]); len(got) != 0 {
		t.Errorf("answered %x to a hello that had come before", got)
	}
	if came.Load() != 1 {
		t.Error("a hello counted twice")
	}
}

func TestBadHelloIsRefused(t *testing.T) {
	key := keyOf("key")
	b, came := listening(t, unique(t, "b")), new(atomic.Int64)
	b.Serve(key, counting(came))
	good := (&hello{kind: 1, from: "somebody", to: b.id, number: 5}).encode(&key)
	flipped := good
	flipped[4]++
	elsewhere := (&hello{kind: 1, from: "somebody", to: "another", number: 6}).encode(&key)
	for name, say := range map[string][]byte{
		"nothing": nil, "half": good[:helloSize/2], "another kind than was signed": flipped[:],
		"for another process": elsewhere[:], "noise": make([]byte, helloSize),
	} {
		got := ask(t, b.id, say)
		if len(got) > 0 && !slices.Equal(got, append([]byte{255, 255, 255, 255}, make([]byte, macSize)...)) {
			t.Errorf("%s: answered %x", name, got)
		}
	}
	if came.Load() > 0 {
		t.Error("a stream was taken in")
	}
}

// Each refusal has a code of its own.
func TestRefusal(t *testing.T) {
	a, _ := serving(t, unique(t, "a"), "key")
	b := listening(t, unique(t, "b"))
	b.Serve(keyOf("key"), Taker{
		Admit: func(peer string, kind byte) Code {
			if peer == a.id && kind == 1 {
				return 42
			}
			return 0
		},
		Take: func(*Stream) { t.Error("a stream that was refused was taken") },
	})
	out, err := a.Dial(within(t), b.id, 1)
	if err != nil {
		t.Fatal(err)
	}
	var refused *RefusedError
	if _, err := out.Read(make([]byte, 1)); !errors.As(err, &refused) || refused.Code != 42 {
		t.Errorf("read: %v, want code 42", err)
	}
}

func TestHangUpAndClose(t *testing.T) {
	ctx := within(t)
	a, _ := serving(t, unique(t, "a"), "key")
	b, came := serving(t, unique(t, "b"), "key")
	open := func() (*Stream, *Stream) {
		t.Helper()
		out, err := a.Dial(ctx, b.id, 1)
		if err != nil {
			t.Fatal(err)
		}
		return out, next(t, came)
	}
	expectEnd := func(st *Stream) {
		t.Helper()
		_ = st.SetReadDeadline(time.Now().Add(hang))
		if _, err := st.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read: %v, want the end", err)
		}
	}
	out, in := open()
	a.HangUp(b.id, func(kind byte) bool { return kind == 1 })
	expectEnd(in)
	expectEnd(out)
	out, in = open()
	a.HangUp(b.id, func(kind byte) bool { return kind != 1 })
	a.HangUp(a.id, func(byte) bool { return true })
	if _, err := out.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Read(make([]byte, 1)); err != nil {
		t.Errorf("a stream that was not meant ended: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := out.sock.SetDeadline(time.Time{}); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("a stream survives its socket: %v", err)
	}
	expectEnd(in)
	expectEnd(out)
	if _, err := b.Dial(ctx, a.id, 1); !errors.Is(err, ErrAbsent) {
		t.Errorf("dial after the end: %v, want %v", err, ErrAbsent)
	}
}

// Many streams at the same time, from both sides, are all accepted. None is mistaken for a replay.
func TestManyAtOnce(t *testing.T) {
	ctx := within(t)
	const n = 300
	a, _ := serving(t, unique(t, "a"), "key")
	b, came := listening(t, unique(t, "b")), make(chan *Stream, n)
	b.Serve(keyOf("key"), taking(came))
	var dials sync.WaitGroup
	for range n {
		dials.Go(func() {
			st, err := a.Dial(ctx, b.id, 1)
			if err == nil {
				err = st.Confirm()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	dials.Wait()
	for range n {
		next(t, came) // a dialler may learn that it is admitted before the stream is here
	}
}

// A killed process leaves no socket name behind, and its streams end.
func TestKilledLeavesNothing(t *testing.T) {
	const variable = "ELRUN_TEST_COLOCATED"
	if id := os.Getenv(variable); id != "" {
		s, err := Listen(id)
		if err != nil {
			t.Fatal(err)
		}
		s.Serve(keyOf("key"), taking(make(chan *Stream, 1)))
		fmt.Println("listening")
		select {} // until it is killed
	}
	id := unique(t, "child")
	cmd := exec.Command(os.Args[0], "-test.run", "^TestKilledLeavesNothing$")
	cmd.Env = append(os.Environ(), variable+"="+id)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
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
	a, _ := serving(t, unique(t, "a"), "key")
	st, err := a.Dial(within(t), id, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := st.Confirm(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = st.SetReadDeadline(time.Now().Add(hang))
	if _, err := st.Read(word); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read of a killed process: %v", err)
	}
	_ = cmd.Wait()
	if _, err := a.Dial(within(t), id, 1); !errors.Is(err, ErrAbsent) {
		t.Errorf("dial of a killed process: %v, want %v", err, ErrAbsent)
	}
}
