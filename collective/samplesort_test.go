package collective_test

import (
	"context"
	"slices"

	"github.com/elrun/elrun/collective"
)

// sampleSort sorts numbers that are spread over the ranks. Each rank sorts its own and offers some of
// them as a sample; the sample gives the borders between the parts that the ranks get.
func sampleSort(ctx context.Context, c *collective.Comm) ([]float64, error) {
	const numbers, perRank = 1200, 8
	first, end := collective.Chunk(numbers, c.Size(), c.Rank())
	own := make([]float64, 0, end-first)
	for i := first; i < end; i++ {
		own = append(own, float64(uint64(i)*0x9e3779b97f4a7c15>>44))
	}
	slices.Sort(own)
	sample := make([]float64, perRank)
	for i := range sample {
		sample[i] = own[i*len(own)/perRank]
	}
	samples := make([]float64, c.Size()*perRank)
	if err := collective.AllGather(ctx, c, samples, sample); err != nil {
		return nil, err
	}
	slices.Sort(samples)
	send, recv := make([]int, c.Size()), make([]int, c.Size())
	from := 0
	for rank := range send {
		to := len(own)
		if rank < c.Size()-1 {
			to, _ = slices.BinarySearch(own, samples[(rank+1)*perRank])
		}
		send[rank] = to - from
		from = to
	}
	if err := collective.AllToAll(ctx, c, recv, send); err != nil {
		return nil, err
	}
	part := make([]float64, sum(recv))
	if err := collective.AllToAllV(ctx, c, part, own, recv, send); err != nil {
		return nil, err
	}
	slices.Sort(part)
	counts := make([]int, c.Size())
	if err := collective.AllGather(ctx, c, counts, []int{len(part)}); err != nil {
		return nil, err
	}
	all := make([]float64, numbers)
	return all, collective.GatherV(ctx, c, all, part, counts, 0)
}

// sum returns the sum of counts.
func sum(counts []int) (n int) {
	for _, k := range counts {
		n += k
	}
	return n
}
