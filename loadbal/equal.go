package loadbal

// Equal splits microbatches among n ranks as evenly as whole numbers allow: shares
// differ by at most one and lower ranks get the larger ones. The result has n
// elements that add up to microbatches. It panics if n < 1 or microbatches < 0.
func Equal(microbatches, n int) []int {
	if n < 1 || microbatches < 0 {
		panic("loadbal: Equal needs at least one rank and no negative number of microbatches")
	}
	shares := make([]int, n)
	for r := range shares {
		shares[r] = microbatches / n
		if r < microbatches%n {
			shares[r]++
		}
	}
	return shares
}

// Range returns the microbatches [first, end) of rank when the ranks take theirs
// one after the other. The ranges of all ranks cover every microbatch once.
func Range(shares []int, rank int) (first, end int) {
	for _, s := range shares[:rank] {
		first += s
	}
	return first, first + shares[rank]
}
