package collective_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
)

// program is a classical MPI program. At rank 0 it returns its result, whose bits must not depend on
// the number of ranks.
type program func(ctx context.Context, c *collective.Comm) ([]float64, error)

// Each program has the same result at any number of ranks as in one process, over all transports.
func TestPrograms(t *testing.T) {
	t.Parallel()
	programs := map[string]program{"pi": pi, "heat": heat, "conjugate gradient": conjugateGradient, "k-means": kMeans, "sample sort": sampleSort}
	want := make(map[string][]float64)
	for name, p := range programs {
		cluster.Run(t, 1, func(ctx context.Context, c *collective.Comm) (err error) {
			want[name], err = p(ctx, c)
			return err
		})
	}
	for _, n := range []int{2, 3, 4, 6} {
		for where, connect := range everywhere(t, n) {
			for name, p := range programs {
				errs := cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error {
					got, err := p(ctx, c)
					if err == nil && c.Rank() == 0 {
						err = same("result", got, want[name])
					}
					return err
				}, cluster.Over(connect()), cluster.MayFail())
				if err := errors.Join(errs...); err != nil {
					t.Errorf("%s at %d ranks, %s: %v", name, n, where, err)
				}
			}
		}
	}
}

// The tags of pi.
const (
	tagAsk    = iota // a worker asks for a part; its vector has the hits of its last part, if any
	tagPart          // the number of the part to compute
	tagFinish        // there is no part left
)

// pi estimates pi by random points in parts of equal size. Rank 0 gives the parts to the workers as
// they ask for them, and does not know who asks next.
func pi(ctx context.Context, c *collective.Comm) ([]float64, error) {
	const parts = 40
	if c.Rank() > 0 {
		return nil, piWorker(ctx, c)
	}
	hits, next := int64(0), int64(0)
	for working := c.Size() - 1; working > 0; {
		m, err := collective.Probe(ctx, c, collective.AnySource, tagAsk)
		if err != nil {
			return nil, err
		}
		done := make([]int64, m.Len)
		if err := collective.Recv(ctx, c, m.From, m.Tag, done); err != nil {
			return nil, err
		}
		for _, h := range done {
			hits += h
		}
		answer, part := tagPart, []int64{next}
		if next == parts {
			answer, part = tagFinish, nil
			working--
		} else {
			next++
		}
		if err := collective.Send(ctx, c, m.From, answer, part); err != nil {
			return nil, err
		}
	}
	for ; next < parts; next++ { // alone
		hits += hitsOf(next)
	}
	return []float64{4 * float64(hits) / (parts * partSize)}, nil
}

// piWorker computes parts until there are none left.
func piWorker(ctx context.Context, c *collective.Comm) error {
	var done []int64
	for {
		if err := collective.Send(ctx, c, 0, tagAsk, done); err != nil {
			return err
		}
		m, err := collective.Probe(ctx, c, 0, collective.AnyTag)
		if err != nil {
			return err
		}
		part := make([]int64, m.Len)
		if err := collective.Recv(ctx, c, 0, m.Tag, part); err != nil || m.Tag == tagFinish {
			return err
		}
		done = []int64{hitsOf(part[0])}
	}
}

const partSize = 1000 // points of a part

// hitsOf returns how many points of a part are in the quarter of the circle.
func hitsOf(part int64) (hits int64) {
	x := uint64(part)*0x9e3779b97f4a7c15 + 1
	random := func() float64 {
		x = x*6364136223846793005 + 1442695040888963407
		return float64(x>>11) / (1 << 53)
	}
	for range partSize {
		if a, b := random(), random(); a*a+b*b < 1 {
			hits++
		}
	}
	return hits
}

// heat computes the flow of heat in a plate that is hot at one corner. The ranks form a grid, and
// each has a block of cells with a halo of one cell, which it gets from its neighbours in each step.
// The plate is closed: beyond its edge a cell sees its own temperature.
func heat(ctx context.Context, c *collective.Comm) ([]float64, error) {
	const rows, cols, steps = 12, 24, 30
	dims, err := collective.Dims(c.Size(), 0, 0)
	if err != nil {
		return nil, err
	}
	grid, err := collective.NewGrid(c.Size(), dims, nil)
	if err != nil {
		return nil, err
	}
	at := grid.Coords(c.Rank())
	b := newBlock(rows/dims[0], cols/dims[1])
	if at[0] == 0 && at[1] == 0 {
		b.set(0, 0, 1000)
	}
	for range steps {
		if err := b.exchange(ctx, c, grid); err != nil {
			return nil, err
		}
		b.step()
	}
	return b.gather(ctx, c, grid)
}

// block is the cells of one rank. Row -1, row rows, column -1 and column cols are the halo.
type block struct {
	rows, cols int
	cells      []float64
}

func newBlock(rows, cols int) *block {
	return &block{rows, cols, make([]float64, (rows+2)*(cols+2))}
}

func (b *block) index(i, j int) int           { return (i+1)*(b.cols+2) + j + 1 }
func (b *block) at(i, j int) float64          { return b.cells[b.index(i, j)] }
func (b *block) set(i, j int, v float64)      { b.cells[b.index(i, j)] = v }
func (b *block) row(i int) []float64          { return b.cells[b.index(i, 0):b.index(i, b.cols)] }
func (b *block) setColumn(j int, v []float64) { b.eachRow(func(i int) { b.set(i, j, v[i]) }) }

func (b *block) column(j int) []float64 {
	v := make([]float64, b.rows)
	b.eachRow(func(i int) { v[i] = b.at(i, j) })
	return v
}

func (b *block) eachRow(f func(i int)) {
	for i := range b.rows {
		f(i)
	}
}

// exchange fills the halo. The edges of the plate keep their own temperature, because SendRecv
// changes nothing where there is no neighbour.
func (b *block) exchange(ctx context.Context, c *collective.Comm, g collective.Grid) error {
	const rowTag, columnTag = 1, 2
	for _, by := range []int{1, -1} {
		last, halo := b.rows-1, -1 // the row that moves down, and the halo that gets one
		if by < 0 {
			last, halo = 0, b.rows
		}
		copy(b.row(halo), b.row(b.rows-1-last))
		if err := collective.SendRecv(ctx, c, g.Shift(c.Rank(), 0, by), rowTag, b.row(halo), b.row(last)); err != nil {
			return err
		}
		last, halo = b.cols-1, -1
		if by < 0 {
			last, halo = 0, b.cols
		}
		in := b.column(b.cols - 1 - last)
		if err := collective.SendRecv(ctx, c, g.Shift(c.Rank(), 1, by), columnTag, in, b.column(last)); err != nil {
			return err
		}
		b.setColumn(halo, in)
	}
	return nil
}

// step computes the next temperature of each cell.
func (b *block) step() {
	next := slices.Clone(b.cells)
	for i := range b.rows {
		for j := range b.cols {
			around := (b.at(i-1, j) + b.at(i+1, j)) + (b.at(i, j-1) + b.at(i, j+1))
			next[b.index(i, j)] = b.at(i, j) + 0.2*(around-4*b.at(i, j))
		}
	}
	b.cells = next
}

// gather returns the whole plate at rank 0, row by row.
func (b *block) gather(ctx context.Context, c *collective.Comm, g collective.Grid) ([]float64, error) {
	var own []float64
	b.eachRow(func(i int) { own = append(own, b.row(i)...) })
	all := make([]float64, c.Size()*len(own))
	if err := collective.Gather(ctx, c, all, own, 0); err != nil || c.Rank() > 0 {
		return nil, err
	}
	out := make([]float64, len(all))
	for k, v := range all {
		at := g.Coords(k / len(own))
		i, j := at[0]*b.rows+k%len(own)/b.cols, at[1]*b.cols+k%b.cols
		out[i*b.cols*g.Dims()[1]+j] = v
	}
	return out, nil
}

// conjugateGradient solves A x = b, where A has 4 on the diagonal and -1 beside it. Each rank has
// some blocks of the vectors. A sum over all elements adds the sums of the blocks in their order, so
// that its bits do not depend on the number of ranks.
func conjugateGradient(ctx context.Context, c *collective.Comm) ([]float64, error) {
	const blocks, size = 12, 20
	line, err := collective.NewGrid(c.Size(), []int{c.Size()}, nil)
	if err != nil {
		return nil, err
	}
	n := blocks / c.Size() * size
	dot := func(a, b []float64) (float64, error) {
		own, all := make([]float64, n/size), make([]float64, blocks)
		for i := range a {
			own[i/size] += a[i] * b[i]
		}
		err := collective.AllGather(ctx, c, all, own)
		sum := 0.0
		for _, s := range all {
			sum += s
		}
		return sum, err
	}
	x, r := make([]float64, n), make([]float64, n)
	for i := range r {
		r[i] = math.Sin(float64(c.Rank()*n + i))
	}
	p := slices.Clone(r)
	rr, err := dot(r, r)
	for range 25 {
		ap, merr := multiply(ctx, c, line, p)
		pap, derr := dot(p, ap)
		if err := errors.Join(err, merr, derr); err != nil {
			return nil, err
		}
		alpha := rr / pap
		for i := range x {
			x[i] += alpha * p[i]
			r[i] -= alpha * ap[i]
		}
		before := rr
		if rr, err = dot(r, r); err != nil {
			return nil, err
		}
		for i := range p {
			p[i] = r[i] + rr/before*p[i]
		}
	}
	if rr > 1e-20 {
		return nil, fmt.Errorf("the residual is %g", rr)
	}
	all := make([]float64, blocks*size)
	return all, collective.Gather(ctx, c, all, x, 0)
}

// multiply returns the own elements of A v. It needs one element of each neighbour on the line.
func multiply(ctx context.Context, c *collective.Comm, line collective.Grid, v []float64) ([]float64, error) {
	n := len(v)
	left, right := make([]float64, 1), make([]float64, 1)
	err := errors.Join(
		collective.SendRecv(ctx, c, line.Shift(c.Rank(), 0, 1), 3, left, v[n-1:]),
		collective.SendRecv(ctx, c, line.Shift(c.Rank(), 0, -1), 4, right, v[:1]))
	around := slices.Concat(left, v, right)
	out := make([]float64, n)
	for i := range out {
		out[i] = 4*v[i] - around[i] - around[i+2]
	}
	return out, err
}

// model is what the ranks of k-means know of the clusters.
type model struct {
	Names   []string
	Centres [][2]int64
}

// kMeans finds three clusters of points with integer coordinates, so that the sums are exact. Rank 0
// chooses the first centres, and gathers how many points of each rank are in each cluster.
func kMeans(ctx context.Context, c *collective.Comm) ([]float64, error) {
	const points = 600
	var m model
	if c.Rank() == 0 {
		m = model{[]string{"a", "b", "c"}, [][2]int64{{0, 0}, {10, 0}, {0, 10}}}
	}
	if err := collective.BroadcastValue(ctx, c, &m, 0); err != nil {
		return nil, err
	}
	first, end := collective.Chunk(points, c.Size(), c.Rank())
	var sizes map[string]int
	for range 10 {
		sums := make([]int64, 3*len(m.Centres)) // of each cluster: x, y, number of points
		sizes = make(map[string]int)
		for i := first; i < end; i++ {
			k := m.nearest(pointOf(i))
			sums[3*k] += pointOf(i)[0]
			sums[3*k+1] += pointOf(i)[1]
			sums[3*k+2]++
			sizes[m.Names[k]]++
		}
		if err := collective.AllReduce(ctx, c, sums, sums, collective.Sum[int64]); err != nil {
			return nil, err
		}
		for k := range m.Centres {
			if n := sums[3*k+2]; n > 0 {
				m.Centres[k] = [2]int64{sums[3*k] / n, sums[3*k+1] / n}
			}
		}
	}
	all, err := collective.GatherValues(ctx, c, sizes, 0)
	if err != nil || c.Rank() > 0 {
		return nil, err
	}
	var out []float64
	for k, name := range m.Names {
		total := 0
		for _, sizes := range all {
			total += sizes[name]
		}
		out = append(out, float64(m.Centres[k][0]), float64(m.Centres[k][1]), float64(total))
	}
	return out, nil
}

// nearest returns the index of the centre that is nearest to a point.
func (m model) nearest(p [2]int64) int {
	distance := func(c [2]int64) int64 { return (c[0]-p[0])*(c[0]-p[0]) + (c[1]-p[1])*(c[1]-p[1]) }
	best := 0
	for k, c := range m.Centres {
		if distance(c) < distance(m.Centres[best]) {
			best = k
		}
	}
	return best
}

// pointOf returns a point near one of three places.
func pointOf(i int) [2]int64 {
	places := [3][2]int64{{1000, 1000}, {9000, 2000}, {4000, 8000}}
	h := uint64(i) * 0x9e3779b97f4a7c15
	return [2]int64{places[i%3][0] + int64(h>>40)%1500, places[i%3][1] + int64(h>>20)%1500}
}

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
