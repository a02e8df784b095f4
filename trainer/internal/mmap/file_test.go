package mmap

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// content returns n bytes with different values at neighbouring positions.
func content(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}

// opened writes b to a file and opens it.
func opened(t *testing.T, b []byte) *File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // some tests have closed it
	return f
}

// A mapped file behaves like a bytes.Reader with the same content.
func TestReadAt(t *testing.T) {
	want := content(3*os.Getpagesize() + 17)
	f := opened(t, want)
	if f.Size() != int64(len(want)) || filepath.Base(f.Path()) != "data" {
		t.Errorf("size %d, path %s", f.Size(), f.Path())
	}
	rapid.Check(t, func(t *rapid.T) {
		off := rapid.IntRange(0, len(want)+100).Draw(t, "offset")
		dst := make([]byte, rapid.IntRange(0, 2*len(want)).Draw(t, "length"))
		wantDst := make([]byte, len(dst))
		n, err := f.ReadAt(dst, int64(off))
		wantN, wantErr := bytes.NewReader(want).ReadAt(wantDst, int64(off))
		if len(dst) == 0 {
			wantErr = nil // bytes.Reader differs here
		}
		if n != wantN || !errors.Is(err, wantErr) || !bytes.Equal(dst, wantDst) {
			t.Fatalf("%d bytes, error %v; want %d, %v", n, err, wantN, wantErr)
		}
	})
	if _, err := f.ReadAt(make([]byte, 1), -1); err == nil || !strings.Contains(err.Error(), f.Path()) {
		t.Errorf("negative offset: error %v", err)
	}
}

func TestSection(t *testing.T) {
	want := content(9000)
	f := opened(t, want)
	if err := iotest.TestReader(f.Section(10, 8000), want[10:8010]); err != nil {
		t.Error(err)
	}
}

func TestEmptyFile(t *testing.T) {
	f := opened(t, nil)
	if n, err := f.ReadAt(make([]byte, 1), 0); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%d bytes, error %v", n, err)
	}
	f.WillNeed(t.Context(), [][2]int64{{0, 1}})
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "none") {
		t.Errorf("missing file: error %v", err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("folder: error %v", err)
	}
}

// If a file is truncated, reads of the missing part return an error, in this goroutine and in others, and the process continues. The
// remaining part of the file stays readable.
func TestCutOff(t *testing.T) {
	page := os.Getpagesize()
	want := content(4 * page)
	f := opened(t, want)
	if err := os.Truncate(f.Path(), int64(page)); err != nil {
		t.Fatal(err)
	}
	dst := make([]byte, page)
	if n, err := f.ReadAt(dst, 0); n != page || err != nil || !bytes.Equal(dst, want[:page]) {
		t.Errorf("before the cut: %d bytes, error %v", n, err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			dst := make([]byte, page)
			_, err := f.ReadAt(dst, int64(page*(1+i%3)))
			if !errors.Is(err, ErrShrunk) || !strings.Contains(err.Error(), f.Path()) {
				t.Errorf("after the cut: error %v, want ErrShrunk with the path", err)
			}
		})
	}
	all.Wait()
	f.WillNeed(t.Context(), [][2]int64{{0, int64(4 * page)}}) // this is only advice, so it returns no error
}

// Renaming another file over an open file does not change the open file.
func TestReplaced(t *testing.T) {
	want := content(5000)
	f := opened(t, want)
	other := f.Path() + ".new"
	if err := os.WriteFile(other, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, f.Path()); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("error %v, the same bytes %t", err, bytes.Equal(got, want))
	}
}

func TestClose(t *testing.T) {
	f := opened(t, content(100_000))
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() { // readers go on until the file is closed
			dst := make([]byte, 1000)
			for off := int64(0); ; off = (off + 997) % 99_000 {
				f.WillNeed(context.Background(), [][2]int64{{off, off + 1000}})
				if _, err := f.ReadAt(dst, off); err != nil {
					if !errors.Is(err, fs.ErrClosed) {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	readers.Wait()
	if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("closed twice: error %v", err)
	}
}

// pages agrees with an implementation that tests each page separately.
func TestPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const page = 8
		size := rapid.Int64Range(0, 200).Draw(t, "size")
		bound := rapid.Int64Range(-10, 220)
		var ranges [][2]int64
		for range rapid.IntRange(0, 10).Draw(t, "ranges") {
			ranges = append(ranges, [2]int64{bound.Draw(t, "first"), bound.Draw(t, "end")})
		}
		var want [][2]int64
		for p := int64(0); p < size; p += page {
			end := min(p+page, size)
			if !slices.ContainsFunc(ranges, func(r [2]int64) bool { return r[0] < end && r[1] > p && r[0] < r[1] }) {
				continue
			}
			if n := len(want); n > 0 && want[n-1][1] == p {
				want[n-1][1] = end
				continue
			}
			want = append(want, [2]int64{p, end})
		}
		if got := pages(slices.Clone(ranges), page, size); !slices.Equal(got, want) {
			t.Fatalf("pages of %v in %d bytes: %v, want %v", ranges, size, got, want)
		}
	})
}

func TestWillNeedEnds(t *testing.T) {
	f := opened(t, content(10*os.Getpagesize()))
	ctx, cancel := context.WithCancel(t.Context())
	f.WillNeed(ctx, [][2]int64{{5, 6}, {-4, 1 << 60}})
	cancel()
	f.WillNeed(ctx, [][2]int64{{5, 6}})
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	f.WillNeed(t.Context(), [][2]int64{{5, 6}}) // the file is closed: nothing happens
}
