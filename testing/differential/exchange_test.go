package differential_test

import (
	"context"
	"fmt"

	"github.com/elrun/elrun/collective"
)

// exchange runs a case whose parts have different lengths, or which exchanges messages, and returns its result.
func exchange[T element](ctx context.Context, comm *collective.Comm, c testCase, op collective.Op[T]) ([]T, error) {
	rank, n := comm.Rank(), comm.Size()
	sent, received := c.parts(rank, n)
	tag := int(c.seed) // its own in each case, so that Probe does not find a message of the next case
	switch c.collective {
	case "alltoallv":
		dst := make([]T, total(received))
		return dst, collective.AllToAllV(ctx, comm, dst, inputs[T](c, rank, total(sent)), received, sent)
	case "reducescatterv":
		counts, _ := c.parts(0, n)
		dst := make([]T, counts[rank])
		return dst, collective.ReduceScatterV(ctx, comm, dst, inputs[T](c, rank, total(counts)), counts, op)
	case "sendrecv":
		dst := make([]T, c.count)
		ring := collective.Peers{To: (rank + 1) % n, From: (rank + n - 1) % n}
		return dst, collective.SendRecv(ctx, comm, ring, tag, dst, inputs[T](c, rank, c.count))
	case "grid":
		return shift(ctx, comm, inputs[T](c, rank, c.count))
	case "probe", "waitany":
		src := inputs[T](c, rank, c.part(rank, 0))
		if rank > 0 {
			return nil, collective.Send(ctx, comm, 0, tag, src)
		}
		dst := make([]T, total(received))
		parts := cut(dst, received)
		copy(parts[0], src)
		if c.collective == "probe" {
			return dst, receiveAny(ctx, comm, tag, parts)
		}
		return dst, awaitAny(ctx, comm, tag, parts)
	}
	return nil, fmt.Errorf("unknown collective %q", c.collective)
}

// shift sends src to both neighbours in each dimension of a grid that is periodic in its first dimension only. It returns what
// came, with zeros for a neighbour that there is not.
func shift[T element](ctx context.Context, comm *collective.Comm, src []T) ([]T, error) {
	dims, err := collective.Dims(comm.Size(), 0, 0)
	if err != nil {
		return nil, err
	}
	grid, err := collective.NewGrid(comm.Size(), dims, []bool{true, false})
	if err != nil {
		return nil, err
	}
	dst := make([]T, 4*len(src))
	for i := range 4 {
		peers := grid.Shift(comm.Rank(), i/2, 1-i%2*2)
		if err := collective.SendRecv(ctx, comm, peers, i, dst[i*len(src):][:len(src)], src); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// receiveAny receives the parts of all other ranks as they come.
func receiveAny[T element](ctx context.Context, comm *collective.Comm, tag int, parts [][]T) error {
	for range len(parts) - 1 {
		m, err := collective.Probe(ctx, comm, collective.AnySource, tag)
		if err != nil {
			return err
		}
		if m.Len != len(parts[m.From]) {
			return fmt.Errorf("Probe found %d elements of rank %d, want %d", m.Len, m.From, len(parts[m.From]))
		}
		if err := collective.Recv(ctx, comm, m.From, m.Tag, parts[m.From]); err != nil {
			return err
		}
	}
	return nil
}

// awaitAny receives the parts of all other ranks at the same time, and waits for each one as it ends.
func awaitAny[T element](ctx context.Context, comm *collective.Comm, tag int, parts [][]T) error {
	handles := make([]*collective.Handle, len(parts))
	for r := 1; r < len(parts); r++ {
		handles[r] = collective.IRecv(ctx, comm, r, tag, parts[r])
	}
	for {
		i, err := collective.WaitAny(ctx, handles...)
		if i < 0 || err != nil {
			return err
		}
		handles[i] = nil
	}
}

// cut cuts a vector into parts of the given lengths.
func cut[T element](v []T, lengths []int) [][]T {
	var parts [][]T
	for _, n := range lengths {
		parts, v = append(parts, v[:n]), v[n:]
	}
	return parts
}

func total(counts []int) (sum int) {
	for _, n := range counts {
		sum += n
	}
	return sum
}
