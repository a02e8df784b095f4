package collective

import (
	"fmt"
	"slices"
)

// Grid is a Cartesian grid of ranks, as of MPI_Cart_create: a box of the given dimensions, in which
// the last coordinate of consecutive ranks changes fastest. It only computes ranks; the calls take
// any communicator with as many ranks. A Grid is immutable.
type Grid struct {
	dims     []int
	periodic []bool
}

// NewGrid returns a grid of n ranks. The product of dims must be n; Dims chooses them. In a
// dimension that is periodic the last rank and the first are neighbours; periodic has one element
// for each dimension, or is nil for none. The slices are copied.
func NewGrid(n int, dims []int, periodic []bool) (Grid, error) {
	if periodic == nil {
		periodic = make([]bool, len(dims))
	}
	if len(periodic) != len(dims) {
		return Grid{}, fmt.Errorf("collective: new grid: %w: periodic has %d elements for %d dimensions", ErrArgument, len(periodic), len(dims))
	}
	if rest, err := freeSize(n, dims); err != nil || rest != 1 || slices.Contains(dims, 0) {
		return Grid{}, fmt.Errorf("collective: new grid: %w: dimensions %v of %d ranks, want positive ones whose product is the number of ranks", ErrArgument, dims, n)
	}
	return Grid{slices.Clone(dims), slices.Clone(periodic)}, nil
}

// Dims divides n ranks among the dimensions of a grid, as MPI_Dims_create does. An element of dims
// that is positive is kept; each element that is 0 is replaced, so that the product of the result is
// n. The chosen dimensions are in descending order, and the largest of them is as small as possible.
func Dims(n int, dims ...int) ([]int, error) {
	rest, err := freeSize(n, dims)
	if err != nil {
		return nil, fmt.Errorf("collective: dims: %w", err)
	}
	out := slices.Clone(dims)
	free := 0
	for _, d := range dims {
		if d == 0 {
			free++
		}
	}
	chosen := balanced(rest, free, rest)
	if chosen == nil && rest > 1 {
		return nil, fmt.Errorf("collective: dims: %w: the product of the dimensions %v is not the number of ranks, %d", ErrArgument, dims, n)
	}
	for i := range out {
		if out[i] == 0 {
			out[i], chosen = chosen[0], chosen[1:]
		}
	}
	return out, nil
}

// freeSize returns n divided by the product of the dimensions that are not 0.
func freeSize(n int, dims []int) (int, error) {
	if n < 1 {
		return 0, fmt.Errorf("%w: %d ranks, want 1 or more", ErrArgument, n)
	}
	rest := n
	for _, d := range dims {
		if d < 0 || d > 0 && rest%d != 0 {
			return 0, fmt.Errorf("%w: dimensions %v do not divide %d ranks", ErrArgument, dims, n)
		}
		if d > 0 {
			rest /= d
		}
	}
	return rest, nil
}

// balanced returns k factors of n in descending order, none above most, whose largest is as small as
// possible, then the second largest, and so on. It returns nil if there are none, and for k = 0.
func balanced(n, k, most int) []int {
	if k == 1 && n <= most {
		return []int{n}
	}
	if k < 2 {
		return nil
	}
	for d := 1; d <= min(n, most); d++ {
		if n%d != 0 {
			continue
		}
		if rest := balanced(n/d, k-1, d); rest != nil {
			return append([]int{d}, rest...)
		}
	}
	return nil
}

// Dims returns the dimensions of the grid.
func (g Grid) Dims() []int { return slices.Clone(g.dims) }

// Coords returns the coordinates of a rank; nil if the grid does not have the rank.
func (g Grid) Coords(rank int) []int {
	out := make([]int, len(g.dims))
	for i := len(g.dims) - 1; i >= 0; i-- {
		out[i] = rank % g.dims[i]
		rank /= g.dims[i]
	}
	if rank != 0 || slices.ContainsFunc(out, func(x int) bool { return x < 0 }) {
		return nil
	}
	return out
}

// Rank returns the rank at the coordinates, one for each dimension. In a periodic dimension a
// coordinate outside the grid wraps around; otherwise the result is NoRank.
func (g Grid) Rank(coords ...int) int {
	rank := 0
	for i, n := range g.dims {
		x := coords[i]
		if g.periodic[i] {
			x = (x%n + n) % n
		}
		if x < 0 || x >= n {
			return NoRank
		}
		rank = rank*n + x
	}
	return rank
}

// Shift returns the peers of a rank in a shift of all ranks by a number of places along a dimension,
// as MPI_Cart_shift does: To is that number of places above the rank, and From below. A peer beyond
// the edge of a dimension that is not periodic is NoRank. With the result SendRecv moves a vector of
// each rank to its neighbour. Shift panics if the grid does not have the rank or the dimension.
func (g Grid) Shift(rank, dim, by int) Peers {
	at := g.Coords(rank)
	x := at[dim]
	at[dim] = x + by
	to := g.Rank(at...)
	at[dim] = x - by
	return Peers{To: to, From: g.Rank(at...)}
}
