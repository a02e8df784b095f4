package main

import (
	"context"
	"fmt"
	"io"
)

// once runs a side once, with some sizes.
func (s side) once(ctx context.Context, r rig, n int, sizes []int) ([]result, error) {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	commands, err := s.start(r, ctx, n, sizes)
	if err != nil {
		return nil, err
	}
	c := newCrew(len(commands), cancel)
	for _, cmd := range commands {
		c.start(cmd)
	}
	return c.wait(sizes)
}

// plan describes the measurements on one host.
type plan struct {
	sides  []side
	ranks  []int
	groups [][]int // sizes that one run measures; few, so that runs are short
	rounds int
}

// longEvery: a side with long runs is measured only in every longEvery-th round. The speed of a
// virtual machine's cores may change within seconds, so many short runs give better medians than a
// few long runs.
const longEvery = 4

// longRounds returns the number of rounds in which sides with long runs are measured.
func longRounds(rounds int) int { return (rounds + longEvery - 1) / longEvery }

// turn is one run of a side.
type turn struct {
	side     side
	n, round int
	sizes    []int
}

// turns lists all runs in order. For each number of ranks and group of sizes, a round has a run of every side, one right after
// the other, so that other load on the machine affects all of them. Each round begins with another side.
func (p plan) turns() []turn {
	var out []turn
	for round := range p.rounds {
		for _, n := range p.ranks {
			for _, sizes := range p.groups {
				out = append(out, p.all(turn{n: n, round: round, sizes: sizes})...)
			}
		}
	}
	return out
}

// all lists a run of every side that is measured in the round of t.
func (p plan) all(t turn) []turn {
	var out []turn
	for i := range p.sides {
		t.side = p.sides[(i+t.round)%len(p.sides)]
		if t.round%longEvery == 0 || !t.side.long {
			out = append(out, t)
		}
	}
	return out
}

// carryOut makes all runs. After a failure it leaves out the later runs of the side, and records
// the reason.
func (p plan) carryOut(ctx context.Context, r rig, s *study, log io.Writer) error {
	for _, t := range p.turns() {
		if s.Missing[t.side.name] != "" {
			continue
		}
		results, err := t.side.once(ctx, r, t.n, t.sizes)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			s.Missing[t.side.name] = fmt.Sprintf("n = %d: %v", t.n, err)
			fmt.Fprintf(log, "%s is left out: %v\n", t.side.name, err)
			continue
		}
		if err := s.add(partHost, t.side.name, t.round, results); err != nil {
			return err
		}
		t.show(log, results)
	}
	return nil
}

// show logs a run.
func (t turn) show(log io.Writer, results []result) {
	fmt.Fprintf(log, "round %d  n = %d  %-20s", t.round+1, t.n, t.side.name)
	for _, r := range results {
		fmt.Fprintf(log, "  %s %s us", size(r.Bytes), micros(r.P50))
	}
	fmt.Fprintln(log)
}
