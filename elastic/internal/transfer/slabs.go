package transfer

import (
	"io"
	"slices"

	"github.com/cespare/xxhash/v2"
)

// slabs is a writer into pieces of memory that never move, so that it grows without copying the
// data written before.
type slabs struct {
	size   int      // bytes of a piece
	first  int      // bytes of the first piece, if not 0 and less than size
	pieces [][]byte // all full except the last
	// spare has pieces of size bytes each, which are used before new memory.
	spare [][]byte
	bytes int64 // bytes written
}

// Write appends a copy of all of p. It returns no error.
func (s *slabs) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		last := len(s.pieces) - 1
		if last < 0 || len(s.pieces[last]) == cap(s.pieces[last]) {
			s.grow()
			continue
		}
		b := s.pieces[last]
		n := copy(b[len(b):cap(b)], rest)
		s.pieces[last], rest = b[:len(b)+n], rest[n:]
	}
	s.bytes += int64(len(p))
	return len(p), nil
}

// grow adds an empty piece.
func (s *slabs) grow() {
	size := s.size
	if len(s.pieces) == 0 && s.first > 0 {
		size = min(s.first, size)
	}
	// If the first piece is smaller than a spare piece it gets new memory.
	if n := len(s.spare); n > 0 && cap(s.spare[n-1]) == size {
		s.pieces = append(s.pieces, s.spare[n-1][:0])
		s.spare = s.spare[:n-1]
		return
	}
	s.pieces = append(s.pieces, make([]byte, 0, size))
}

// fit frees unused memory if this memory is a large part of the whole: a small state fills only a
// small part of its piece. It copies at most one piece. No write may follow.
func (s *slabs) fit() {
	s.spare = nil
	last := len(s.pieces) - 1
	if s.memory()-s.bytes > s.bytes/4 {
		s.pieces[last] = slices.Clone(s.pieces[last])
	}
}

// memory returns the capacity of the pieces, in bytes.
func (s *slabs) memory() int64 {
	var n int64
	for _, p := range s.pieces {
		n += int64(cap(p))
	}
	return n
}

// sum returns the xxHash64 of all bytes.
func (s *slabs) sum() uint64 {
	d := xxhash.New()
	for _, p := range s.pieces {
		d.Write(p)
	}
	return d.Sum64()
}

// hashes returns the hash of each piece.
func (s *slabs) hashes() []sum {
	out := make([]sum, len(s.pieces))
	for i, p := range s.pieces {
		out[i] = sumOf(p)
	}
	return out
}

// Reader reads the bytes of a snapshot from the pieces in which they were received. It is not safe
// for concurrent use.
type Reader struct {
	pieces [][]byte
	at     int // bytes already read from the first piece
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(r.pieces) > 0 && r.at == len(r.pieces[0]) {
		r.pieces, r.at = r.pieces[1:], 0
	}
	if len(r.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.pieces[0][r.at:])
	r.at += n
	return n, nil
}

// WriteTo implements io.WriterTo. It passes the pieces themselves to w, which must not keep or
// change them.
func (r *Reader) WriteTo(w io.Writer) (int64, error) {
	var total int64
	for len(r.pieces) > 0 {
		n, err := w.Write(r.pieces[0][r.at:])
		total += int64(n)
		r.at += n
		if err != nil {
			return total, err
		}
		r.pieces, r.at = r.pieces[1:], 0
	}
	return total, nil
}
