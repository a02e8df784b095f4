package shm

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/elrun/elrun/internal/cores"
)

// ErrRevoked is the error of every wait after Segment.Revoke.
var ErrRevoked = errors.New("shm: revoked")

// GoneError is the error of a wait for a rank that has ended.
type GoneError struct{ Rank int } // in the lane

// Error names the rank.
func (g *GoneError) Error() string { return fmt.Sprintf("shm: rank %d has ended", g.Rank) }

// Sizes of the parts of a segment.
const (
	// Layout is the version of the layout and protocol of a segment, and of the messages by which
	// ranks agree on a segment. Ranks with different versions cannot share memory. Increase Layout
	// with every change of the layout, the protocol or the messages.
	Layout = 11
	// Lanes is the number of lanes of a segment.
	Lanes = 4
	// Inline is the longest vector that travels in a slot, in bytes.
	Inline = 8 << 10
	// MaxRanks is the most ranks that a segment can have.
	MaxRanks = 64

	cacheLine     = 64        // bytes of a cache line
	stagedChunk   = 64 << 10  // bytes of a chunk in a block
	maxRankBlocks = 512 << 10 // bytes of the blocks of a rank
	maxAllBlocks  = 4 << 20   // bytes of the blocks of all ranks
	minBlocks     = 2         // blocks of a rank where results overwrite their sources
	maxBlocks     = 4         // blocks of a rank otherwise
)

// counter is advanced by one rank, and other ranks wait for its value. It may wrap: only
// differences count.
type counter struct {
	value    atomic.Uint32
	_        [4]byte
	sleepers atomic.Uint64 // a bit for each rank that sleeps until value changes
}

// paddedCounter is a counter in a cache line of its own, against false sharing.
type paddedCounter struct {
	counter
	_ [cacheLine - unsafe.Sizeof(counter{})]byte
}

// rankArea is the part of a lane that one rank writes. The blocks of the rank follow it.
type rankArea struct {
	filled paddedCounter // blocks that the rank has copied in
	folded paddedCounter // blocks in which the rank has reduced its chunk
	taken  paddedCounter // blocks that the rank does not need any more
	cpu    atomic.Uint32 // 1 + the core on which the rank waited last; 0 if unknown
	_      [cacheLine - 4]byte
	chunk  chunk
	slots  [2]slot
}

// chunk assigns a rank's chunk of a direct call to the rank that reduces it: the chunk's own rank,
// or another rank that steals it. If each rank has a core of its own, no other rank reads the first
// cache line of this struct.
type chunk struct {
	// claimed has in its upper half the last direct call in which the chunk was claimed, and in its
	// lower half the rank that claimed it.
	claimed atomic.Uint64
	_       [cacheLine - 8]byte
	// folded is the last direct call in which the chunk was reduced.
	folded counter
	// failed is not 0 once a call of the rank has failed.
	failed atomic.Uint32
	_      [cacheLine - unsafe.Sizeof(counter{}) - 4]byte
}

// slot holds a rank's description of one call. A rank has two slots and uses them in turn: it may
// post its next call while other ranks still read the present call. Two slots are enough: before a
// rank posts its next call but one, all ranks have posted the next call, and so have read the
// present call. A short vector begins in the cache line of the counter posted, for which the other
// ranks wait, so these ranks fetch one line for both.
type slot struct {
	posted counter // number of calls that the rank has posted, this one included
	// digest is the digest of the header. Comparing it needs no other cache line.
	digest  uint64
	inline  [Inline]byte
	header  Header
	offsets Offsets
	_       [2*cacheLine - unsafe.Sizeof(counter{}) - 8 - unsafe.Sizeof(Header{}) - unsafe.Sizeof(Offsets{})]byte
}

// Header describes a call to the other ranks of a lane. It must be equal at all ranks.
type Header [7]uint64

// set copies o word by word. o was written a moment ago, and a load that is wider than the stores
// before it defeats store-to-load forwarding and stalls.
func (h *Header) set(o *Header) {
	for i := range h {
		h[i] = o[i]
	}
}

// digest returns a hash by which headers are compared. Headers that differ in one word always have
// different digests; other different headers collide with negligible probability. It is FNV-1a over
// words, in two halves that the processor computes in parallel. Lane.awaitSlot uses it to find
// ranks that make different calls.
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

// Offsets are the positions of a rank's vectors in its arena, as Arena.Ref returns them; 0 for a
// vector in ordinary memory.
type Offsets struct{ Dst, Src Ref }

// rankBlocksSize returns the bytes of the blocks of one of n ranks. One rank's blocks fit the
// cache of a core, all blocks fit the shared cache. Each chunk of a block has room for its part of
// a power of two, and for one cache line more, so that a vector whose length is a power of two
// needs no extra block for the remainder.
func rankBlocksSize(n int) int {
	room := min(minBlocks*n*stagedChunk, maxRankBlocks)
	for room*n > maxAllBlocks {
		room /= 2
	}
	return room + maxBlocks*n*cacheLine
}

// BoardWords is the number of words that each rank has on the board of a segment.
const BoardWords = 8

// boardRow has the words of one rank, in a cache line of its own. Any rank may change them, so a
// reader checks what it reads.
type boardRow [BoardWords]atomic.Uint64

// boardOffset returns where the board of a segment of n ranks begins: after the lanes, at a multiple
// of the cache line.
func boardOffset(n int) int { return n * Lanes * rankAreaSize(n) }

// robustOffset returns where the words of the death watch begin: after the board.
func robustOffset(n int) int { return boardOffset(n) + n*cacheLine }

// Size returns the bytes of memory that a segment of n ranks takes.
func Size(n int) int { return robustOffset(n) + n*n*robustWordSize }

// LargestSize returns the largest number of bytes that a segment of up to n ranks takes: a segment
// of more ranks can be smaller.
func LargestSize(n int) int {
	most := 0
	for ranks := 1; ranks <= min(n, MaxRanks); ranks++ {
		most = max(most, Size(ranks))
	}
	return most
}

// rankAreaSize returns the bytes of a rank's area and blocks in a lane, a multiple of the cache
// line.
func rankAreaSize(n int) int { return int(unsafe.Sizeof(rankArea{})) + rankBlocksSize(n) }

// Segment is one rank's view of the memory.
type Segment struct {
	memory     []byte
	arenas     [][]byte // by rank; nil where there is none
	rank       int
	size       int // ranks
	blockBytes int // bytes that a rank has for blocks
	cacheLimit int // bytes; see nonTemporalFrom
	// processors is the number of processors that the ranks share.
	processors int
	event      *Event      // wakes this rank; nil where ranks poll
	wakers     []*Waker    // wake the other ranks, by rank
	deathWatch *DeathWatch // nil if WatchDeaths was not called
	revoked    atomic.Bool
	gone       []atomic.Bool // by rank
}

// Attached is a rank's segment and its arena, in which the rank allocates vectors that all ranks of
// the segment can access. Arena is nil if the rank has none. The transport passes an Attached to
// the collective calls.
type Attached struct {
	*Segment
	Arena *Arena
}

// Ordinary returns memory for a segment between the goroutines of this process.
func Ordinary(size int) []byte {
	b := make([]byte, size+cacheLine)
	// Attach requires memory that begins at a cache line, and make does not guarantee it.
	skip := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % cacheLine
	return b[skip:][:size:size]
}

// Machine has the properties of the machine that a segment depends on. A process reads them once:
// reading opens a dozen small files, which takes longer than the rest of Attach.
type Machine struct {
	// processors is the number of processors that this process may use.
	processors int
	// cacheBytes is the size of the largest cache; 0 if unknown.
	cacheBytes int
}

// ReadMachine returns the present values of this machine, for this process.
func ReadMachine() Machine { return Machine{processors: cores.Count(), cacheBytes: largestCache()} }

// Attach returns the segment of one of n ranks in memory of at least Size(n) bytes. The memory
// must be zero when the first rank attaches, begin at a multiple of 64, and stay mapped while the
// segment is used. arenas holds the arenas of all ranks as this process has mapped them, nil for
// a rank without one; they must stay mapped as long as the memory. arenas may be nil if no rank has
// one.
func (m Machine) Attach(memory []byte, arenas [][]byte, n, rank int) (*Segment, error) {
	if n < 1 || n > MaxRanks || rank < 0 || rank >= n {
		return nil, fmt.Errorf("shm: attach: rank %d of %d ranks: want 1 to %d ranks, and a rank of 0 or more and less than their number", rank, n, MaxRanks)
	}
	if len(memory) < Size(n) {
		return nil, fmt.Errorf("shm: attach: %d bytes of memory, want %d for %d ranks", len(memory), Size(n), n)
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(memory)))%cacheLine != 0 {
		return nil, fmt.Errorf("shm: attach: the memory does not begin at a multiple of %d", cacheLine)
	}
	if arenas == nil {
		arenas = make([][]byte, n)
	}
	if len(arenas) != n {
		return nil, fmt.Errorf("shm: attach: %d arenas for %d ranks, want one for each rank", len(arenas), n)
	}
	return &Segment{memory: memory, arenas: arenas, rank: rank, size: n, blockBytes: rankBlocksSize(n),
		cacheLimit: nonTemporalFrom(m.cacheBytes), processors: m.processors,
		gone: make([]atomic.Bool, n)}, nil
}

// UseEvents lets this rank sleep during long waits: the event own wakes this rank, and this rank
// wakes the other ranks by others, which is indexed by rank. Either all ranks of a segment call
// UseEvents or none; without events the ranks poll. Call it before the first Lane.
func (s *Segment) UseEvents(own *Event, others []*Waker) { s.event, s.wakers = own, others }

// Revoke makes every pending and later wait of this process's lanes fail, and ends its death watch.
// Revoke does not block, and has no effect in other processes. It may be called after the memory
// was unmapped.
func (s *Segment) Revoke() {
	s.revoked.Store(true)
	if s.deathWatch != nil {
		s.deathWatch.end()
	}
	s.wakeSelf()
}

// Gone makes every pending and later wait for a rank fail, unless the rank has already satisfied
// the wait. Otherwise it is like Revoke.
func (s *Segment) Gone(rank int) {
	s.gone[rank].Store(true)
	s.wakeSelf()
}

// wakeSelf wakes all sleeping waits of this rank, so that they look at revoked and gone.
func (s *Segment) wakeSelf() {
	if s.event != nil {
		s.event.signal()
	}
}

// area returns a rank's area in a lane.
func (s *Segment) area(lane, rank int) *rankArea {
	offset := (rank*Lanes + lane) * rankAreaSize(s.size)
	return (*rankArea)(unsafe.Pointer(&s.memory[offset]))
}

// blocks returns the memory of a rank's blocks in a lane.
func (s *Segment) blocks(lane, rank int) []byte {
	offset := (rank*Lanes+lane)*rankAreaSize(s.size) + int(unsafe.Sizeof(rankArea{}))
	return s.memory[offset : offset+s.blockBytes]
}

// row returns the words of a rank.
func (s *Segment) row(rank int) *boardRow {
	return (*boardRow)(unsafe.Pointer(&s.memory[boardOffset(s.size)+rank*cacheLine]))
}

// LoadWord returns word i of a rank. All words are 0 at first. No method for words waits, and none
// may be called after the memory was unmapped.
func (s *Segment) LoadWord(rank, i int) uint64 { return s.row(rank)[i].Load() }

// StoreWord sets word i of this rank.
func (s *Segment) StoreWord(i int, v uint64) { s.row(s.rank)[i].Store(v) }

// SwapWord sets word i of a rank to next if it is old (compare and swap), and reports whether it was.
// Of several ranks that swap the same old value one succeeds.
func (s *Segment) SwapWord(rank, i int, old, next uint64) bool {
	return s.row(rank)[i].CompareAndSwap(old, next)
}

// nonTemporalFrom returns the total size of all ranks' results, in bytes, from which results are
// written by non-temporal stores: a result of this size would evict its own beginning from the
// shared cache. cache is the size of the cache. Only an eighth of a large cache counts, because
// other programs on a large machine use a part of it.
func nonTemporalFrom(cache int) int { return max(32<<20, cache/8) }

// Lane returns lane i of the segment for the given ranks, which include this rank. i is less than
// Lanes. Each of these ranks must call Lane once, with the same i and the same ranks.
func (s *Segment) Lane(i int, ranks []int) *Lane {
	l := &Lane{segment: s, size: len(ranks), ranks: ranks, rank: slices.Index(ranks, s.rank), views: newViews(len(ranks)),
		policies: s.policies(len(ranks))}
	if l.rank < 0 || i < 0 || i >= Lanes {
		panic(fmt.Sprintf("shm: lane %d does not exist, or its ranks %v do not include rank %d", i, ranks, s.rank))
	}
	for _, r := range ranks {
		l.areas = append(l.areas, s.area(i, r))
		l.blocks = append(l.blocks, s.blocks(i, r))
		l.arenas = append(l.arenas, s.arenas[r])
	}
	return l
}

// policies returns the policies of a lane of the given number of ranks. docs/internals/shm.md has
// the gain of each heuristic.
func (s *Segment) policies(ranks int) policies {
	// Whether the ranks are processes; goroutines of one process are placed by Go's scheduler.
	processes := s.event != nil
	return policies{
		busyPoll:   s.size <= s.processors,               // a rank with a core of its own sees a message sooner by polls than by yields
		rebalance:  processes,                            // the kernel may leave waiting ranks on one core while another idles
		stealing:   processes && ranks >= 2*s.processors, // a time slice is longer than the reduction of a short chunk
		storeModes: true,
		chooseFrom: chooseFrom,
	}
}

// wake wakes the ranks whose bits are set.
func (s *Segment) wake(ranks uint64) {
	for ; ranks != 0; ranks &= ranks - 1 {
		if r := bits.TrailingZeros64(ranks); r < len(s.wakers) && s.wakers[r] != nil {
			s.wakers[r].signal()
		}
	}
}

// reached reports whether the counter has reached target. The difference is signed, so that a
// counter that has wrapped around compares correctly.
func (c *counter) reached(target uint32) bool { return int32(c.value.Load()-target) >= 0 }

// eventCount returns the number of signals of the event; 0 without an event.
func (s *Segment) eventCount() uint64 {
	if s.event == nil {
		return 0
	}
	return s.event.count()
}

// sleep waits until the number of signals exceeds seen. Without an event it waits for pollInterval.
func (s *Segment) sleep(seen uint64) {
	if s.event == nil {
		time.Sleep(pollInterval)
		return
	}
	s.event.sleep(seen)
}
