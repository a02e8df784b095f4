package differential_test

import "fmt"

// testCase is one call, or in sendrecv, grid, probe and waitany messages between ranks. count is the number of elements in one part: of the whole vector
// in allreduce and scan, of the result in reducescatter, of the source in allgather, and of the
// part that one rank sends to another in alltoall. In calls with parts of different lengths, count is
// the most that a part may have.
type testCase struct {
	collective string
	typ        string
	op         string // "none" if nothing is reduced
	count      int
	seed       uint64
}

// String returns the case as a line for testdata/openmpi.c.
func (t testCase) String() string {
	return fmt.Sprintf("%s %s %s %d %d", t.collective, t.typ, t.op, t.count, t.seed)
}

// lengths returns the numbers of elements of the source and of the result at n ranks.
func (t testCase) lengths(n int) (src, dst int) {
	switch t.collective {
	case "reducescatter":
		return t.count * n, t.count
	case "allgather":
		return t.count, t.count * n
	case "alltoall":
		return t.count * n, t.count * n
	case "loc":
		return 2 * t.count, 2 * t.count
	case "grid":
		return t.count, 4 * t.count
	}
	return t.count, t.count
}

// part returns the number of elements that rank from has for rank to in calls with parts of
// different lengths. testdata/openmpi.c has the same function.
func (t testCase) part(from, to int) int {
	return int((t.seed + 3*uint64(from) + 5*uint64(to)) % (uint64(t.count) + 1))
}

// parts returns the lengths of the parts that a rank sends to all ranks and receives from all ranks.
func (t testCase) parts(rank, n int) (sent, received []int) {
	for r := range n {
		sent, received = append(sent, t.part(rank, r)), append(received, t.part(r, rank))
	}
	return sent, received
}

// allCases lists every collective with every type, operation and count, each with its own seed.
// Every case has vectors of up to 500 elements. Some types and operations also have a long vector,
// which elrun and Open MPI send in several segments.
func allCases() []testCase {
	const long = 50021
	var all []testCase
	add := func(collective, typ, op string, counts ...int) {
		for _, count := range counts {
			all = append(all, testCase{collective, typ, op, count, uint64(len(all) + 1)})
		}
	}
	for _, collective := range []string{"allreduce", "reducescatter", "reducescatterv", "scan"} {
		for _, typ := range types() {
			for _, op := range opsOf(typ) {
				add(collective, typ, op, 0, 1, 3, 500)
			}
		}
		add(collective, "float32", "sum", long)
		add(collective, "int64", "max", long)
	}
	for _, collective := range []string{"allgather", "alltoall", "alltoallv", "sendrecv", "grid", "probe", "waitany"} {
		for _, typ := range types() {
			add(collective, typ, "none", 0, 1, 3, 500)
		}
		add(collective, "int32", "none", long)
	}
	for _, typ := range []string{"int32", "int64", "float32", "float64"} { // those of MPI's pairs
		add("loc", typ, "minloc", 0, 1, 3, 500, long)
		add("loc", typ, "maxloc", 0, 1, 3, 500, long)
	}
	return all
}

// types lists the element types that both elrun and Open MPI have. Open MPI has no 16-bit floats.
func types() []string {
	return []string{"int8", "int32", "int64", "uint8", "uint32", "uint64", "float32", "float64"}
}

// opsOf lists the operations that both elrun and MPI have for a type. MPI has logical operations
// only for integers.
func opsOf(typ string) []string {
	arithmetic := []string{"sum", "prod", "min", "max"}
	if typ == "float32" || typ == "float64" {
		return arithmetic
	}
	return append(arithmetic, "and", "or", "xor", "bitand", "bitor", "bitxor")
}

// input returns an element of a rank's source as an integer, which is then converted to the element
// type. For products the integers are -4 to 4, so that products of floats are exact, and for minloc and maxloc, so
// that many are equal. For logical operations a third of the integers is zero. Otherwise they have 20 bits, so that float32 sums of
// eight ranks are exact. testdata/openmpi.c has the same function.
func (t testCase) input(rank, index int) int64 {
	h := mix((t.seed<<40 | uint64(rank)<<32 | uint64(index)) * 0x9e3779b97f4a7c15)
	switch t.op {
	case "prod", "minloc", "maxloc":
		return int64(h%9) - 4
	case "and", "or", "xor":
		return int64(h % 3)
	}
	return int64(h%(1<<20)) - 1<<19
}

// mix is the output function of splitmix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
