package main

import (
	"fmt"
	"math"
	"strings"
)

// goal is a lower limit for the time of one side divided by the time of another side.
type goal struct {
	what       string
	slow, fast string
	ranks      []int
	from, to   int // bytes
	want       float64
}

const kib, mib = 1 << 10, 1 << 20

// hostGoals returns the goals of elrun on one host.
func hostGoals() []goal {
	small := []int{2, 4}
	return []goal{
		{"ordinary slices, long vectors", mpiShared, elrunHeap, small, 16 * mib, 64 * mib, 2},
		{"ordinary slices, long vectors", glooTCP, elrunHeap, small, 16 * mib, 64 * mib, 2.5},
		{"slices from Alloc", mpiShared, elrunAlloc, small, 64 * kib, 64 * mib, 4},
		{"ordinary slices", mpiShared, elrunHeap, small, 64 * kib, mib, 1.3},
		{"short vectors", mpiShared, elrunHeap, []int{4}, 4, kib, 1},
		{"short vectors", mpiShared, elrunHeap, []int{2}, 4, kib, 0.8},
		{"more ranks than cores", mpiShared, elrunHeap, []int{8}, 4, 64 * mib, 1.5},
		{"what memory allows", memoryBound, elrunHeap, []int{2}, 64 * mib, 64 * mib, 1},
		{"what memory allows", memoryBound, elrunAlloc, []int{2}, 64 * mib, 64 * mib, 1},
		{"loopback, encrypted", glooTCP, elrunSealed, []int{4}, 64 * mib, 64 * mib, 0.5},
		{"loopback, plaintext", glooTCP, elrunPlain, []int{4}, 64 * mib, 64 * mib, 1},
	}
}

// freeGoals returns the goals on several hosts whose links are as fast as the cores.
func freeGoals() []goal {
	four := []int{4}
	return []goal{
		{"four hosts, unshaped", glooTCP, elrunPlain, four, 64 * mib, 64 * mib, 1},
		{"four hosts, unshaped", glooTCP, elrunSealed, four, 64 * mib, 64 * mib, 0.75},
	}
}

// row is a row in the table of goals.
type row struct {
	what, against string
	n, bytes      int
	want, seen    string
	reached       string
}

// goals returns a table of all goals, with a row for each number of ranks and size.
func (s *study) goals() string {
	var b strings.Builder
	b.WriteString("| what | against | n | size | wanted | seen | |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	rows := append(s.memoryRows(), s.hostsRows()...)
	for _, g := range hostGoals() {
		rows = append(rows, s.rows(partHost, g)...)
	}
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %d | %s | %s | %s | %s |\n", r.what, r.against, r.n, size(r.bytes), r.want, r.seen, r.reached)
	}
	return b.String()
}

// rows compares the two sides of a goal at every measured size of a part.
func (s *study) rows(part string, g goal) []row {
	var out []row
	for _, n := range g.ranks {
		for _, bytes := range s.sizes(part) {
			if bytes < g.from || bytes > g.to {
				continue
			}
			r := compare(s.times(part, g.slow, n, bytes), s.times(part, g.fast, n, bytes))
			out = append(out, row{g.fast + ": " + g.what, g.slow, n, bytes, ">= " + strings.TrimSuffix(decimals(g.want), "0"), r.String(), reachedText(r.Of, r.Of >= g.want)})
		}
	}
	return out
}

// memoryGoal returns how much private memory a rank may use: two vectors and 48 MiB.
func memoryGoal(bytes int) int64 { return 2*int64(bytes) + 48*mib }

// memoryRows compares the memory of elrun's ranks with the goal, for vectors of 64 MiB.
func (s *study) memoryRows() []row {
	const bytes = 64 * mib
	var out []row
	for _, n := range s.ranks(partHost) {
		for _, side := range []string{elrunHeap, elrunAlloc, elrunSealed, elrunPlain, elrunStream} {
			if most := s.largest(side, n, bytes); most > 0 {
				want := memoryGoal(bytes)
				out = append(out, row{side + ": memory of its own", "-", n, bytes, "<= " + mebibytes(want), mebibytes(most), reachedText(0, most <= want)})
			}
		}
	}
	return out
}

// largest returns the largest memory of a side in any round; 0 if unknown.
func (s *study) largest(side string, n, bytes int) int64 {
	most := int64(0)
	for _, r := range s.cell(partHost, side, n, bytes) {
		most = max(most, r.RSSAnon)
	}
	return most
}

// hostsRows compares the parts with several hosts with their goals.
func (s *study) hostsRows() []row {
	var out []row
	for _, bytes := range s.sizes(partHosts) {
		us := median(s.times(partHosts, elrunSealed, 4, bytes))
		r := row{what: elrunSealed + ": four hosts", against: "500 us", n: 4, bytes: bytes, want: ">= 1.0", seen: decimals(500 / us), reached: reachedText(us, us <= 500)}
		switch reached := ringBound(4, bytes) / us; {
		case bytes >= 16*mib:
			r.against, r.want, r.seen, r.reached = "the ring's bound", ">= 0.96", decimals(reached), reachedText(us, reached >= 0.96)
		case bytes > kib:
			continue
		}
		out = append(out, r)
	}
	for _, g := range freeGoals() {
		out = append(out, s.rows(partFree, g)...)
	}
	for _, bytes := range s.sizes(partTwo) {
		over := median(s.times(partTwo, elrunSealed, 4, bytes)) / float64(bytes)
		out = append(out, row{"two hosts of two ranks: bytes sent", "the vector once", 4, bytes, "<= " + decimals(wireOverhead), decimals(over), reachedText(over, over <= wireOverhead)})
	}
	for _, bytes := range s.sizes(partDelay) {
		reached := linkRatio(bytes, median(s.times(partDelay, elrunSealed, 2, bytes)))
		out = append(out, row{elrunSealed + ": 100 ms round trip", "500 Mbit/s", 2, bytes, ">= 0.80", decimals(reached), reachedText(reached, reached >= 0.8)})
	}
	return out
}

// reachedText returns whether a goal is reached, as text. seen is NaN if it was not measured.
func reachedText(seen float64, reached bool) string {
	switch {
	case math.IsNaN(seen):
		return "not measured"
	case reached:
		return "yes"
	}
	return "**no**"
}
