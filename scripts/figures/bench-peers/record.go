package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// result is what a side prints for one size: the names are those of "elrun bench --json",
// and each side leaves out what it does not know.
type result struct {
	N         int     `json:"n"`                     // ranks
	Bytes     int     `json:"bytes"`                 // of the vector
	P50       float64 `json:"us_p50"`                // median over the calls, microseconds
	Wrong     int64   `json:"wrong"`                 // elements
	RSSAnon   int64   `json:"rss_anon"`              // bytes, of the largest rank
	Algorithm string  `json:"algorithm,omitempty"`   // elrun's
	Copy      string  `json:"single_copy,omitempty"` // Open MPI's mechanism
	Readable  bool    `json:"readable,omitempty"`    // whether ranks can read each other's memory
}

// record is a result with where it comes from.
type record struct {
	Part  string `json:"part"` // what is measured: partHost and so on
	Side  string `json:"side"`
	Round int    `json:"round"`
	result
}

// The parts of the report.
const (
	partHost  = "one host"
	partHosts = "four hosts"
	partFree  = "four hosts, unshaped"
	partTwo   = "two hosts of two ranks" // P50 is bytes that a host sent in a call
	partDelay = "100 ms"
)

// study is everything that was measured: the report is a function of it alone.
type study struct {
	Machine machine           `json:"machine"`
	Missing map[string]string `json:"missing,omitempty"` // why, by side
	Records []record          `json:"records"`
}

// parse reads the lines of a side. Other lines than JSON objects are not its own: they
// come from libraries, which print warnings.
func parse(r io.Reader) ([]result, error) {
	var out []result
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		_, text, ok := strings.Cut(lines.Text(), "{") // elrun run puts the peer before it
		if !ok {
			continue
		}
		var one result
		if err := json.Unmarshal([]byte("{"+text), &one); err != nil {
			return nil, fmt.Errorf("line %q: %w", lines.Text(), err)
		}
		if one.N < 1 || one.Bytes < 1 || one.P50 <= 0 {
			return nil, fmt.Errorf("line %q: no ranks, no bytes or no time", lines.Text())
		}
		out = append(out, one)
	}
	return out, lines.Err()
}

// load reads a study; a file that is not there is an empty one.
func load(name string) (*study, error) {
	s := &study{Missing: map[string]string{}}
	text, err := os.ReadFile(name)
	if os.IsNotExist(err) {
		return s, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if s.Missing == nil {
		s.Missing = map[string]string{}
	}
	return s, nil
}

// save writes a study, a record a line, so that changes can be read.
func (s *study) save(name string) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	head, err := json.MarshalIndent(study{Machine: s.Machine, Missing: s.Missing, Records: []record{}}, "", " ")
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.Write(bytes.TrimSuffix(head, []byte("]\n}")))
	for i, r := range s.Records {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n  ")
		b.Write(line)
	}
	b.WriteString("]\n}\n")
	return os.WriteFile(name, b.Bytes(), 0o644)
}

// drop forgets the records of a part, before it is measured anew.
func (s *study) drop(part string) {
	s.Records = slices.DeleteFunc(s.Records, func(r record) bool { return r.Part == part })
}

// add notes the results of a side. Wrong numbers are an error.
func (s *study) add(part, side string, round int, results []result) error {
	for _, r := range results {
		s.Records = append(s.Records, record{part, side, round, r})
		if r.Wrong != 0 {
			return fmt.Errorf("%s, n = %d, %d bytes: %d elements are wrong", side, r.N, r.Bytes, r.Wrong)
		}
	}
	return nil
}

// cell is the rounds of one side at one size.
func (s *study) cell(part, side string, n, bytes int) []record {
	var out []record
	for _, r := range s.Records {
		if r.Part == part && r.Side == side && r.N == n && r.Bytes == bytes {
			out = append(out, r)
		}
	}
	return out
}

// times are the medians of a cell by round.
func (s *study) times(part, side string, n, bytes int) map[int]float64 {
	out := map[int]float64{}
	for _, r := range s.cell(part, side, n, bytes) {
		out[r.Round] = r.P50
	}
	return out
}

// sizes lists those of a part that were measured, in order.
func (s *study) sizes(part string) []int {
	return s.distinct(part, func(r record) int { return r.Bytes })
}

// ranks lists the numbers of ranks of a part, in order.
func (s *study) ranks(part string) []int {
	return s.distinct(part, func(r record) int { return r.N })
}

func (s *study) distinct(part string, of func(record) int) []int {
	var out []int
	for _, r := range s.Records {
		if r.Part == part {
			out = append(out, of(r))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
