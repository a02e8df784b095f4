package steal

// Most is the greatest number of microbatches of a step whose owners may change.
const Most = 1<<20 - 1

// Word is a rank's queue of unstarted microbatches in one word, so that one compare-and-swap takes
// some of them: the number of the try in 24 bits, and the range [next, end) of positions in the
// order of the try, in 20 bits each. The owner takes from the front, thieves from the back. A word of
// another try is an empty queue, so a thief that is late takes nothing. The word says all: where the
// same word comes back, the same microbatches are unstarted again.
type Word uint64

// Pack returns the word of the range [next, end) of positions up to Most, in a try. Only the lowest
// 24 bits of the number of the try count.
func Pack(try uint32, next, end int) Word {
	return Word(try)<<40 | Word(next)<<20 | Word(end)
}

// Range returns the positions [next, end) in the queue, and whether the word is of the given try and
// lies within [0, most). Another rank writes the word, so it may have any value.
func (w Word) Range(try uint32, most int) (next, end int, ok bool) {
	next, end = int(w>>20&Most), int(w&Most)
	return next, end, uint32(w>>40) == try&(1<<24-1) && next <= end && end <= most
}

// Front returns the word without the first n positions, which must be in the queue.
func (w Word) Front(n int) Word { return w + Word(n)<<20 }

// Back returns the word without the last n positions, which must be in the queue.
func (w Word) Back(n int) Word { return w - Word(n) }
