package collective

import "github.com/elrun/elrun/collective/transport"

// Board is a few words a rank that the ranks of a host share: a note that another rank reads without
// a call, and by which ranks take work from each other. All communicators over one transport have
// the same board, and all words are 0 when the transport begins. No method waits. Any rank of the
// host may write each word, also a faulty one, so check what you read. A Board is safe for
// concurrent use. A nil Board is the board of a rank that shares no words.
type Board struct {
	ep    *endpoint
	words transport.Words
	local []int // index of each rank in Shared.Ranks, by rank of the communicator; -1 for a rank elsewhere
	self  int   // rank in the communicator
}

// BoardWords is the number of words of each rank on a Board.
const BoardWords = 4

// Has reports whether this rank shares words with a rank.
func (b *Board) Has(rank int) bool { return b != nil && b.local[rank] >= 0 }

// Load returns word i of a rank, from 0 to BoardWords-1. It returns 0 after Close, and for a rank
// without shared words.
func (b *Board) Load(rank, i int) (v uint64) {
	b.use(rank, func(local int) { v = b.words.LoadWord(local, i) })
	return v
}

// Store sets word i of this rank. It does nothing after Close.
func (b *Board) Store(i int, v uint64) {
	if b != nil {
		b.use(b.self, func(int) { b.words.StoreWord(i, v) })
	}
}

// Swap sets word i of a rank to next if it is old, and reports whether it was. Of several ranks that
// swap the same old value one succeeds. It returns false after Close, and for a rank without shared
// words.
func (b *Board) Swap(rank, i int, old, next uint64) (swapped bool) {
	b.use(rank, func(local int) { swapped = b.words.SwapWord(local, i, old, next) })
	return swapped
}

// use calls f with the index of a rank in the shared memory, if it has words and they are not
// released: Close releases them when it no longer holds mu.
func (b *Board) use(rank int, f func(local int)) {
	if !b.Has(rank) {
		return
	}
	b.ep.mu.Lock()
	defer b.ep.mu.Unlock()
	if !b.ep.closed {
		f(b.local[rank])
	}
}
