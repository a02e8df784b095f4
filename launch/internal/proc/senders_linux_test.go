package proc

import (
	"io"
	"net"
	"os"
	"testing"

	"github.com/elrun/elrun/launch/internal/wire"
)

// Of the files that come with data, the last one is kept until it is taken, and all others are closed.
func TestFilesOfSenders(t *testing.T) {
	ours, theirs, err := socketPair()
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	conn, err := net.FileConn(theirs)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	s, err := newSenders(ours)
	if err != nil {
		t.Fatal(err)
	}
	var reads []*os.File
	for i := range 3 {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		reads = append(reads, r)
		c := &wire.WordConn{UnixConn: conn.(*net.UnixConn)}
		c.Word.Store(w)
		if n, err := c.Write([]byte("hello\n")); n != 6 || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
		if n, err := c.Write([]byte("more\n")); n != 5 || err != nil {
			t.Fatalf("wrote %d, %v", n, err)
		}
		_ = w.Close()
		if got, err := io.ReadAll(io.LimitReader(s, 11)); string(got) != "hello\nmore\n" || err != nil || s.last != os.Getpid() {
			t.Fatalf("%d: read %q from %d, %v", i, got, s.last, err)
		}
	}
	f := s.take()
	if f == nil || s.take() != nil {
		t.Fatalf("took %v, and then another", f)
	}
	if _, err := f.WriteString("last"); err != nil {
		t.Error(err)
	}
	_ = f.Close()
	for i, r := range reads {
		got, err := io.ReadAll(r) // ends when all handles of the other end are closed
		if want := map[bool]string{true: "last"}[i == 2]; string(got) != want || err != nil {
			t.Errorf("%d: %q, %v", i, got, err)
		}
	}
	s.drop()
}
