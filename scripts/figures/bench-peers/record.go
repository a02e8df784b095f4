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

// result is the output of a side for one size. The fields have the names of the output of
// "elrun bench --json". A side omits the fields that it cannot measure.
type result struct {
	N         int     `json:"n"`                     // ranks
	Bytes     int     `json:"bytes"`                 // length of the vector
	P50       float64 `json:"us_p50"`                // median over the calls, in microseconds
	Wrong     int64   `json:"wrong"`                 // wrong elements
	RSSAnon   int64   `json:"rss_anon"`              // largest anonymous resident memory of a rank, in bytes
	Algorithm string  `json:"algorithm,omitempty"`   // only from elrun
	Copy      string  `json:"single_copy,omitempty"` // mechanism of Open MPI
	Readable  bool    `json:"readable,omitempty"`    // ranks can read each other's memory
}

// record is a result together with its part, side and round.
type record struct {
	Part  string `json:"part"` // part of the report: partHost and so on
	Side  string `json:"side"`
	Round int    `json:"round"`
	result
}

// The parts of the report.
const (
	partHost  = "one host"
	partHosts = "four hosts"
	partFree  = "four hosts, unshaped"
	partTwo   = "two hosts of two ranks" // P50 is the number of bytes that a host has sent in a call
	partDelay = "100 ms"
)

// study has all measurements. The report depends only on the study.
type study struct {
	Machine machine           `json:"machine"`
	Missing map[string]string `json:"missing,omitempty"` // reasons, by side
	Records []record          `json:"records"`
}

// parse reads the output of a side. It ignores lines without a JSON object, which are warnings of libraries.
func parse(r io.Reader) ([]result, error) {
	var out []result
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		_, text, ok := strings.Cut(lines.Text(), "{") // elrun run prints the index of the peer before the object
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

// load reads a study from a file. A missing file is an empty study.
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

// save writes a study to a file, with one record per line, so that changes are easy to review.
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

// drop removes the records of a part before it is measured again.
func (s *study) drop(part string) {
	s.Records = slices.DeleteFunc(s.Records, func(r record) bool { return r.Part == part })
}

// add adds the results of a side. Wrong elements are an error.
func (s *study) add(part, side string, round int, results []result) error {
	for _, r := range results {
		s.Records = append(s.Records, record{part, side, round, r})
		if r.Wrong != 0 {
			return fmt.Errorf("%s, n = %d, %d bytes: %d elements are wrong", side, r.N, r.Bytes, r.Wrong)
		}
	}
	return nil
}

// cell returns the records of a side at one size, of all rounds.
func (s *study) cell(part, side string, n, bytes int) []record {
	var out []record
	for _, r := range s.Records {
		if r.Part == part && r.Side == side && r.N == n && r.Bytes == bytes {
			out = append(out, r)
		}
	}
	return out
}

// times returns the medians of a cell by round.
func (s *study) times(part, side string, n, bytes int) map[int]float64 {
	out := map[int]float64{}
	for _, r := range s.cell(part, side, n, bytes) {
		out[r.Round] = r.P50
	}
	return out
}

// sizes returns the measured sizes of a part, sorted.
func (s *study) sizes(part string) []int {
	return s.distinct(part, func(r record) int { return r.Bytes })
}

// ranks returns the measured numbers of ranks of a part, sorted.
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
