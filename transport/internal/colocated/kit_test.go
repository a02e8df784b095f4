package colocated

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hang is the time after which a test counts as hanging.
const hang = 4 * time.Minute

// within returns a context that ends when the test hangs.
func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	t.Cleanup(cancel)
	return ctx
}

// keyOf returns a key that is derived from a word.
func keyOf(word string) (k Key) {
	copy(k[:], word)
	return k
}

// listening returns a socket that does not serve yet.
func listening(t testing.TB, id string) *Socket {
	t.Helper()
	s, err := Listen(id)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip("the system has no abstract sockets")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// taking returns a Taker that admits all streams and passes them on.
func taking(came chan<- *Stream) Taker {
	return Taker{Admit: func(string, byte) Code { return 0 }, Take: func(st *Stream) { came <- st }}
}

// counting returns a Taker that admits all streams, counts them, and closes them. The close ends the dialler's wait.
func counting(came *atomic.Int64) Taker {
	return Taker{Admit: func(string, byte) Code { return 0 }, Take: func(st *Stream) {
		came.Add(1)
		_ = st.Close()
	}}
}

// serving returns a socket with a key, and a channel of the streams that it accepts.
func serving(t testing.TB, id, key string) (*Socket, <-chan *Stream) {
	t.Helper()
	s, came := listening(t, id), make(chan *Stream, 100)
	s.Serve(keyOf(key), taking(came))
	return s, came
}

// next returns the next accepted stream.
func next(t testing.TB, came <-chan *Stream) *Stream {
	t.Helper()
	select {
	case st := <-came:
		return st
	case <-time.After(hang):
		t.Fatal("no stream came")
		return nil
	}
}
