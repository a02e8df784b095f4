package idx

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
)

// zeros is an endless reader of zeros that counts the bytes read.
type zeros struct{ n int }

func (z *zeros) Read(p []byte) (int, error) {
	clear(p)
	z.n += len(p)
	return len(p), nil
}

// bomb returns a compressed file with a header and the given number of zeros.
func bomb(t *testing.T, zeroes int64, header ...uint32) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	err = binary.Write(w, binary.BigEndian, header)
	if err == nil {
		_, err = io.Copy(w, io.LimitReader(&zeros{}, zeroes))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// A small compressed file cannot cause a large allocation by a false header. If the file has more
// data than its header claims, reading stops.
func TestPackedBomb(t *testing.T) {
	const side = 256
	b := bomb(t, freeBytes+1<<20, 0x803, MaxPixels/side/side, side, side)
	if _, err := DecodeImages(bytes.NewReader(b)); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "compressed to less than 1/100") {
		t.Errorf("%d bytes that claim to be %d: %v", len(b), MaxPixels, err)
	}
	b = bomb(t, 1<<20, 0x803, 16, side, side)
	if _, err := DecodeImages(bytes.NewReader(b)); err != nil {
		t.Errorf("a small set of black images: %v", err)
	}
	b = bomb(t, 8<<20, 0x803, 1, side, side)
	if _, err := DecodeImages(bytes.NewReader(b)); !errors.Is(err, ErrFormat) || !strings.Contains(err.Error(), "more than the 65536 bytes") {
		t.Errorf("more than the header says: %v", err)
	}
}

// readBody allocates memory only for bytes that arrive, and returns a slice without spare capacity.
func TestBodyTakesWhatItNeeds(t *testing.T) {
	all := func(uint64) bool { return true }
	for _, n := range []uint64{0, 1, 1 << 20, 1<<20 + 1, 5<<20 + 3} {
		b, err := readBody(io.LimitReader(&zeros{}, int64(n)), n, all)
		if err != nil || uint64(len(b)) != n || uint64(cap(b)) != n {
			t.Errorf("%d bytes in %d of memory, want %d: %v", len(b), cap(b), n, err)
		}
	}
	z := &zeros{}
	if _, err := readBody(z, MaxPixels, func(got uint64) bool { return got <= 3<<20 }); err == nil || z.n > 4<<20 {
		t.Errorf("%d bytes were read: %v", z.n, err)
	}
}
