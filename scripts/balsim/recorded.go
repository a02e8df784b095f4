package balsim

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Limits of a trace that Recorded reads.
const (
	mostPeers = 1024
	mostSteps = 1 << 16
	longest   = 1_000_000_000 // microseconds
)

// Recorded reads a trace of measured times: a line for each step, with the microseconds that each
// peer took for a fixed piece of work, separated by spaces. The trace uses the time for the piece
// of work as the time for an equal share. The times include noise, so the simulation adds none.
func Recorded(name, about string, r io.Reader) (*Trace, error) {
	t := &Trace{Name: name, About: about}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		row, err := recordedStep(strings.Fields(lines.Text()))
		if err != nil {
			return nil, fmt.Errorf("balsim: read trace, step %d: %w", len(t.Pace), err)
		}
		t.Pace = append(t.Pace, row)
		if len(row) != len(t.Pace[0]) || len(t.Pace) > mostSteps {
			return nil, fmt.Errorf("balsim: read trace, step %d: %d peers and not %d, or more than %d steps", len(t.Pace)-1, len(row), len(t.Pace[0]), mostSteps)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("balsim: read trace: %w", err)
	}
	if len(t.Pace) == 0 {
		return nil, fmt.Errorf("balsim: read trace: %w", io.ErrUnexpectedEOF)
	}
	t.Microbatches = perPeer * t.Peers()
	return t, nil
}

// recordedStep converts the times of one step to times per microbatch.
func recordedStep(fields []string) ([]int64, error) {
	if len(fields) == 0 || len(fields) > mostPeers {
		return nil, fmt.Errorf("%d peers, and not 1 to %d", len(fields), mostPeers)
	}
	row := make([]int64, len(fields))
	for p, f := range fields {
		micros, err := strconv.ParseInt(f, 10, 64)
		if err != nil || micros < 1 || micros > longest {
			return nil, fmt.Errorf("peer %d: a time of %q microseconds, and not 1 to %d", p, f, longest)
		}
		row[p] = micros * 1000 / perPeer
	}
	return slices.Clip(row), nil
}
