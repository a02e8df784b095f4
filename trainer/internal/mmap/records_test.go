package mmap

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"pgregory.net/rapid"
)

// Records in a file and in memory have the same contents.
func TestRecords(t *testing.T) {
	const first, size, count = 13, 37, 300
	b := content(first + size*count + 5)
	want := b[first : first+size*count]
	both := map[string]*Records{"mapped": opened(t, b).Records(first, size, count), "in memory": InMemory(want, size)}
	for name, r := range both {
		if r.Len() != count || r.Size() != size {
			t.Errorf("%s: %d records of %d bytes", name, r.Len(), r.Size())
		}
		rapid.Check(t, func(t *rapid.T) {
			i, at := rapid.IntRange(0, count-1).Draw(t, "record"), rapid.IntRange(0, size).Draw(t, "at")
			dst := make([]byte, rapid.IntRange(0, size-at).Draw(t, "length"))
			if err := r.Read(dst, i, at); err != nil || !bytes.Equal(dst, want[i*size+at:][:len(dst)]) {
				t.Fatalf("%s: record %d from %d on: %v, error %v", name, i, at, dst, err)
			}
		})
		if all, err := io.ReadAll(r.All()); err != nil || !bytes.Equal(all, want) {
			t.Errorf("%s: all: error %v, the same bytes %t", name, err, bytes.Equal(all, want))
		}
		r.Prefetch(t.Context(), []int{0, 5, count - 1, -1, count, 5})
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestWriteTo(t *testing.T) {
	f := opened(t, content(1000))
	r := f.Records(100, 9, 100)
	var all bytes.Buffer
	if n, err := r.WriteTo(&all); n != 900 || err != nil || !bytes.Equal(all.Bytes(), content(1000)[100:]) {
		t.Errorf("%d bytes, error %v", n, err)
	}
	if err := os.Truncate(f.Path(), 500); err != nil {
		t.Fatal(err)
	}
	if n, err := r.WriteTo(&all); n != 400 || !errors.Is(err, ErrShrunk) {
		t.Errorf("cut off: %d bytes, error %v", n, err)
	}
}

func TestNoRecords(t *testing.T) {
	for name, r := range map[string]*Records{"mapped": opened(t, []byte{1}).Records(1, 8, 0), "in memory": InMemory(nil, 8)} {
		if all, err := io.ReadAll(r.All()); r.Len() != 0 || err != nil || len(all) != 0 {
			t.Errorf("%s: %d records, %v, error %v", name, r.Len(), all, err)
		}
	}
}

// A mistake of the caller panics with a message. It does not cause a page fault.
func TestRecordsPanic(t *testing.T) {
	f := opened(t, content(100))
	r, memory := f.Records(10, 9, 10), InMemory(content(90), 9)
	for name, call := range map[string]func(){
		"more than the file": func() { f.Records(11, 9, 10) },
		"behind the end":     func() { f.Records(101, 1, 0) },
		"negative":           func() { f.Records(-1, 1, 1) },
		"overflow":           func() { f.Records(0, 1<<40, 1<<40) },
		"no multiple":        func() { InMemory(content(10), 3) },
		"no size":            func() { InMemory(content(10), 0) },
		"no record":          func() { _ = r.Read(make([]byte, 1), 10, 0) },
		"before the first":   func() { _ = memory.Read(make([]byte, 1), -1, 0) },
		"too long":           func() { _ = memory.Read(make([]byte, 9), 0, 1) },
		"before the record":  func() { _ = r.Read(make([]byte, 1), 1, -1) },
	} {
		func() {
			defer func() {
				if p := recover(); p == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
}

func TestFailureKeepsTheFirst(t *testing.T) {
	var f Failure
	if f.Err() != nil {
		t.Error(f.Err())
	}
	first := errors.New("first")
	f.Note(first)
	f.Note(errors.New("second"))
	if !errors.Is(f.Err(), first) {
		t.Error(f.Err())
	}
}

// A read from the mapping costs no system call and no allocation.
func BenchmarkRead(b *testing.B) {
	for _, size := range []int{784, 1 << 16} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			f, err := Open("records_test.go")
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			dst := make([]byte, min(size, int(f.Size())))
			b.ReportAllocs()
			b.SetBytes(int64(len(dst)))
			for b.Loop() {
				if _, err := f.ReadAt(dst, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
