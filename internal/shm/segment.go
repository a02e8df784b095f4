package shm

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/elrun/elrun/internal/cores"
)

// ErrRevoked is the error of every wait after Segment.Revoke.
var ErrRevoked = errors.New("shm: revoked")

// GoneError is the error of a wait for a rank that has ended.
type GoneError struct{ Rank int } // in the lane

// Error names the rank.
func (e *GoneError) Error() string { return fmt.Sprintf("shm: rank %d has gone", e.Rank) }

// Sizes of the parts of a segment.
const (
	// Layout is different in programs that lay out a segment differently, or use it in
	// another way: ranks with different ones cannot share memory.
	Layout = 9
	// Lanes is the number of lanes of a segment.
	Lanes = 4
	// Inline is the longest vector that travels with a post, in bytes.
	Inline = 8 << 10
	// MaxRanks is the most ranks that a segment can have.
	MaxRanks = 64

	line    = 64        // bytes of a cache line
	piece   = 64 << 10  // bytes of a chunk in a block
	maxRoom = 512 << 10 // bytes of the blocks of a rank
	allRoom = 4 << 20   // bytes of those of all ranks
	least   = 2         // blocks that a rank has
	most    = 4
)

// word is a counter that one rank advances and others wait for. It may wrap: only
// differences count.
type word struct {
	value    atomic.Uint32
	_        [4]byte
	sleepers atomic.Uint64 // a bit for each rank that has to be woken when value changes
}

// lineWord is a word in a line of its own.
type lineWord struct {
	word
	_ [line - unsafe.Sizeof(word{})]byte
}

// place is what one rank writes of one lane, but for its blocks, which follow.
type place struct {
	filled lineWord      // blocks that it has copied in
	folded lineWord      // blocks of which its chunk is ready
	taken  lineWord      // blocks that it has done with
	core   atomic.Uint32 // on which it waited last, from 1; 0 if that is not known
	_      [line - 4]byte
	chunk  chunk
	posts  [2]post
}

// post is what a rank tells of a call. There are two: a rank may post its next call
// while others still read of this one, and not the one after that. A short vector is in
// the line that the others wait for: it is all that they fetch.
type post struct {
	posted word   // calls that the rank has posted, when this was the last
	digest uint64 // of the header
	inline [Inline]byte
	header Header
	refs   Refs
	_      [2*line - unsafe.Sizeof(word{}) - 8 - unsafe.Sizeof(Header{}) - unsafe.Sizeof(Refs{})]byte
}

// Header describes a call to the other ranks of a lane: it must be the same at all.
type Header [7]uint64

// set copies o word by word: o was written like that a moment ago, and the processor waits for
// what is read in larger pieces than it was written in.
func (h *Header) set(o *Header) {
	for i := range h {
		h[i] = o[i]
	}
}

// digest tells headers apart: those that differ in one word always, others but for a chance
// that need not be reckoned with. It is FNV-1a over words, in two halves that the processor
// reckons at the same time.
func (h *Header) digest() uint64 {
	const basis, prime = 14695981039346656037, 1099511628211
	a, b := uint64(basis), uint64(basis)
	for i := 0; i < len(h)-1; i += 2 {
		v, w := h[i], h[i+1]
		a = (a ^ v ^ v>>32) * prime
		b = (b ^ w ^ w>>32) * prime
	}
	v := h[len(h)-1]
	return (a^v^v>>32)*prime ^ b
}

// Refs say where a rank has its vectors, as Arena.Ref does: 0 where they are ordinary
// memory.
type Refs struct{ Dst, Src Ref }

// roomSize returns the bytes that a rank of n has for its blocks: what it works at stays in the
// cache of its core, and all of it in that of several. A chunk of a block has a line more than
// its part of a power of two, so that a vector of such a length does not need a block for what
// is left over.
func roomSize(n int) int {
	room := min(least*n*piece, maxRoom)
	for room*n > allRoom {
		room /= 2
	}
	return room + most*n*line
}

// Size returns the bytes of memory that a segment of n ranks takes.
func Size(n int) int { return n*Lanes*placeSize(n) + n*n*cellSize }

// placeSize is a multiple of the line, as all its parts are.
func placeSize(n int) int { return int(unsafe.Sizeof(place{})) + roomSize(n) }

// Segment is one rank's view of the memory.
type Segment struct {
	memory     []byte
	arenas     [][]byte // by rank; nil where there is none
	rank       int
	size       int // ranks
	room       int // bytes that a rank has for blocks
	stream     int // see streamFrom
	paced      int // see pacedFrom
	patient    bool
	processors int     // that ranks share
	bell       *Bell   // nil where ranks do not sleep until they are woken
	ropes      []*Rope // of the bells of others, by rank
	vigil      *Vigil  // nil where the others need not hear of this process's death
	revoked    atomic.Bool
	gone       []atomic.Bool // by rank
}

// Attached is what a transport hands to the calls of its rank: its view of the segment, and where
// it allocates what all ranks of the segment can reach, nil if it cannot.
type Attached struct {
	*Segment
	Arena *Arena
}

// Ordinary returns memory for a segment between the goroutines of this process.
func Ordinary(size int) []byte {
	b := make([]byte, size+line)
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % line
	return b[skip:][:size:size]
}

// Attach returns the view of a rank of n of the memory, Size(n) bytes that were zero when
// the first rank came, begin at a multiple of 64, and stay mapped as long as the segment
// is used. So do the arenas of all ranks, as this process has mapped them; nil where a
// rank has none, or in place of all where none has.
func Attach(memory []byte, arenas [][]byte, n, rank int) (*Segment, error) {
	if n < 1 || n > MaxRanks || rank < 0 || rank >= n {
		return nil, fmt.Errorf("shm: attach: rank %d of %d, which can be %d", rank, n, MaxRanks)
	}
	if len(memory) < Size(n) {
		return nil, fmt.Errorf("shm: attach: %d bytes of memory, want %d for %d ranks", len(memory), Size(n), n)
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(memory)))%line != 0 {
		return nil, fmt.Errorf("shm: attach: the memory does not begin at a multiple of %d", line)
	}
	if arenas == nil {
		arenas = make([][]byte, n)
	}
	if len(arenas) != n {
		return nil, fmt.Errorf("shm: attach: %d arenas for %d ranks", len(arenas), n)
	}
	processors := cores.Count()
	return &Segment{memory: memory, arenas: arenas, rank: rank, size: n, room: roomSize(n), stream: streamFrom(largestCache()), paced: pacedFrom,
		patient: n > processors, processors: processors, gone: make([]atomic.Bool, n)}, nil
}

// UseBells lets ranks that wait for long sleep until they are woken: this one by its own
// bell, the others by theirs, whose ropes are by rank. All ranks of a segment do that, or
// none; without it they look again and again. It comes before the first lane.
func (s *Segment) UseBells(own *Bell, others []*Rope) { s.bell, s.ropes = own, others }

// Revoke makes every pending and later wait of this process's lanes fail, and ends its
// vigil. It does not block, and the other processes do not see it. It may be called when the
// memory is not there any more.
func (s *Segment) Revoke() {
	s.revoked.Store(true)
	if s.vigil != nil {
		s.vigil.end()
	}
	s.alarm()
}

// Gone ends the waits for a rank that does nothing more, but for what it has done
// already. It is otherwise as Revoke.
func (s *Segment) Gone(rank int) {
	s.gone[rank].Store(true)
	s.alarm()
}

// alarm lets all that sleep at this rank look around.
func (s *Segment) alarm() {
	if s.bell != nil {
		s.bell.ring()
	}
}

// place returns the part of a lane that a rank writes.
func (s *Segment) place(lane, rank int) *place {
	offset := (rank*Lanes + lane) * placeSize(s.size)
	return (*place)(unsafe.Pointer(&s.memory[offset]))
}

// blocks returns the memory of a rank's blocks in a lane.
func (s *Segment) blocks(lane, rank int) []byte {
	offset := (rank*Lanes+lane)*placeSize(s.size) + int(unsafe.Sizeof(place{}))
	return s.memory[offset : offset+s.room]
}
