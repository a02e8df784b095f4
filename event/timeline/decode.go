package timeline

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/elrun/elrun/event"
)

// entry is a line of a log. A step has its body in step, and none in the event, so that it needs no memory of
// its own.
type entry struct {
	at     instant
	rank   int    // among lines of the same time
	sum    uint64 // length of the line, and a checksum
	isStep bool
	event  event.Event
	step   event.Step
}

// decoder decodes lines. It is not safe for concurrent use.
type decoder struct {
	names  map[string]string // short IDs, so that each is in memory once
	ranges [][2]int          // memory for ranges of microbatches
}

// maxNames bounds the IDs that are remembered.
const maxNames = 1 << 14

// decode decodes a line into e.
func (d *decoder) decode(line []byte, e *entry) error {
	e.isStep = d.fast(line, e)
	if e.isStep {
		return nil
	}
	e.step = event.Step{}
	if err := json.Unmarshal(line, &e.event); err != nil {
		return err
	}
	switch b := e.event.Body.(type) {
	case event.Step:
		e.isStep, e.step, e.event.Body = true, b, nil
	case event.Other:
		e.event.Body = event.Other{Kind: b.Kind} // without the text, which may be long
	}
	return nil
}

// fast decodes the line of a step as our own encoder writes it, and reports whether it has. It leaves all
// else to package json: other kinds, spaces, escapes, names that it does not know.
func (d *decoder) fast(line []byte, e *entry) bool {
	s := scanner{rest: line}
	e.event, e.step = event.Event{}, event.Step{}
	if !s.skip(`{"time":"`) || !s.when(&e.event.Time) || !s.skip(`,"event":"step","peer":"`) {
		return false
	}
	peer, ok := s.text()
	if !ok || !s.skip(`,"index":`) || !s.int(&e.event.Index) {
		return false
	}
	e.event.Peer = d.name(peer)
	for !s.skip(`}`) {
		if !s.skip(`,"`) {
			return false
		}
		name, ok := s.text()
		if !ok || !s.skip(`:`) {
			return false
		}
		if !d.field(name, &s, e) {
			return false
		}
	}
	return len(s.rest) == 0
}

// field decodes the value of a field with a name, and reports whether it can. Of several values of one field
// the last one counts, as in package json.
func (d *decoder) field(name []byte, s *scanner, e *entry) bool {
	b := &e.step
	switch string(name) {
	case "epoch":
		return s.uint(&e.event.Epoch)
	case "step":
		return s.int64(&e.event.Step)
	case "attempt":
		return s.int(&b.Attempt)
	case "microbatches":
		return d.pairs(s, &b.Microbatches)
	case "share_samples":
		return s.int(&b.ShareSamples)
	case "samples":
		return s.int(&b.Samples)
	case "recomputed":
		return s.int(&b.Recomputed)
	case "stolen":
		return s.int(&b.Stolen)
	case "of":
		return s.int64(&b.Of)
	case "sent_bytes":
		return s.int64(&b.SentBytes)
	case "raw_bytes":
		return s.int64(&b.RawBytes)
	case "began":
		return s.skip(`"`) && s.when(&b.Began)
	case "digest", "wait_for":
		return d.string(name, s, b)
	}
	to := number(name, b)
	return to != nil && s.float(to)
}

// number returns the field of a step that has a name and a value with a fraction; nil if there is none.
func number(name []byte, b *event.Step) *float64 {
	switch string(name) {
	case "loss":
		return &b.Loss
	case "compute_ms":
		return &b.ComputeMS
	case "comm_ms":
		return &b.CommMS
	case "step_ms":
		return &b.StepMS
	case "lost_ms":
		return &b.LostMS
	case "point_ms":
		return &b.PointMS
	case "data_ms":
		return &b.DataMS
	case "wait_ms":
		return &b.WaitMS
	case "reduce_ms":
		return &b.ReduceMS
	case "apply_ms":
		return &b.ApplyMS
	case "commit_ms":
		return &b.CommitMS
	case "predicted_ms":
		return &b.PredictedMS
	case "grad_norm":
		return &b.GradNorm
	case "noise_scale":
		return &b.NoiseScale
	case "lr":
		return &b.LR
	}
	return nil
}

// string decodes the digest, or the ID of the peer that the emitter has waited for.
func (d *decoder) string(name []byte, s *scanner, b *event.Step) bool {
	if !s.skip(`"`) {
		return false
	}
	value, ok := s.text()
	if string(name) == "digest" {
		b.Digest = string(value)
		return ok
	}
	b.WaitFor = d.name(value)
	return ok
}

// name returns an ID as a string. Equal IDs share memory.
func (d *decoder) name(b []byte) string {
	if s, ok := d.names[string(b)]; ok {
		return s
	}
	s := string(b)
	if d.names == nil || len(d.names) >= maxNames {
		d.names = make(map[string]string)
	}
	d.names[s] = s
	return s
}

// pairs decodes a list of ranges, as in [[0,3],[7,9]].
func (d *decoder) pairs(s *scanner, to *[][2]int) bool {
	if !s.skip(`[`) {
		return false
	}
	if len(d.ranges)+64 > cap(d.ranges) {
		d.ranges = make([][2]int, 0, 1024)
	}
	begin := len(d.ranges)
	for !s.skip(`]`) {
		if len(d.ranges) > begin && !s.skip(`,`) {
			return false
		}
		var r [2]int
		if !s.skip(`[`) || !s.int(&r[0]) || !s.skip(`,`) || !s.int(&r[1]) || !s.skip(`]`) {
			return false
		}
		d.ranges = append(d.ranges, r)
	}
	*to = d.ranges[begin:len(d.ranges):len(d.ranges)]
	return true
}

// scanner reads pieces of JSON without spaces. Each method reports whether it has found what it expects; if
// not, the scanner is of no further use.
type scanner struct{ rest []byte }

// skip skips a text.
func (s *scanner) skip(text string) bool {
	if len(s.rest) < len(text) || string(s.rest[:len(text)]) != text {
		return false
	}
	s.rest = s.rest[len(text):]
	return true
}

// text returns the rest of a string whose first quotation mark was skipped. The string is plain ASCII
// without escapes.
func (s *scanner) text() ([]byte, bool) {
	for i, c := range s.rest {
		switch {
		case c == '"':
			found := s.rest[:i]
			s.rest = s.rest[i+1:]
			return found, true
		case c < ' ' || c == '\\' || c >= 0x80:
			return nil, false
		}
	}
	return nil, false
}

// when reads the rest of a string that is a time.
func (s *scanner) when(to *time.Time) bool {
	i := bytes.IndexByte(s.rest, '"')
	if i < 0 || to.UnmarshalText(s.rest[:i]) != nil {
		return false
	}
	s.rest = s.rest[i+1:]
	return true
}

// maxDigits bounds the digits of a whole number, which then fits into an int64.
const maxDigits = 18

// whole reads the digits of a whole number that is not negative.
func (s *scanner) whole() (x int64, ok bool) {
	n := 0
	for n < len(s.rest) && '0' <= s.rest[n] && s.rest[n] <= '9' {
		x = 10*x + int64(s.rest[n]-'0')
		if n++; n > maxDigits {
			return 0, false
		}
	}
	if n == 0 || n > 1 && s.rest[0] == '0' {
		return 0, false
	}
	s.rest = s.rest[n:]
	return x, true
}

// uint reads a number that is not negative.
func (s *scanner) uint(to *uint64) bool {
	x, ok := s.whole()
	*to = uint64(x)
	return ok && s.ends()
}

// int64 reads a whole number.
func (s *scanner) int64(to *int64) bool {
	negative := s.skip(`-`)
	x, ok := s.whole()
	if negative {
		x = -x
	}
	*to = x
	return ok && s.ends()
}

// int reads a whole number.
func (s *scanner) int(to *int) bool {
	var x int64
	ok := s.int64(&x)
	*to = int(x)
	return ok && int64(*to) == x
}

// ends reports whether a number ends here.
func (s *scanner) ends() bool {
	return len(s.rest) > 0 && (s.rest[0] == ',' || s.rest[0] == '}' || s.rest[0] == ']')
}

// float reads a number.
func (s *scanner) float(to *float64) bool {
	n := 0
	digits := func() bool {
		from := n
		for n < len(s.rest) && '0' <= s.rest[n] && s.rest[n] <= '9' {
			n++
		}
		return n > from
	}
	is := func(chars string) bool {
		if n < len(s.rest) && bytes.IndexByte([]byte(chars), s.rest[n]) >= 0 {
			n++
			return true
		}
		return false
	}
	is("-")
	first := n
	if !digits() || n > first+1 && s.rest[first] == '0' {
		return false
	}
	if is(".") && !digits() {
		return false
	}
	if is("eE") {
		is("+-")
		if !digits() {
			return false
		}
	}
	x, err := strconv.ParseFloat(string(s.rest[:n]), 64)
	*to, s.rest = x, s.rest[n:]
	return err == nil && s.ends()
}
