package wire

import "bytes"

// MaxLine is the length limit of a line of output, in bytes. A longer line is cut into lines of
// this length. This bounds the memory for a program that never ends a line.
const MaxLine = 64 << 10

// Splitter splits a stream into whole lines with a prefix. It holds at most one line of max bytes.
type Splitter struct {
	Prefix string
	Max    int
	line   []byte // an unfinished line
}

// Feed adds the next part of the stream and returns the lines that it completes, each with prefix
// and line end, or nil. The caller owns the result.
func (s *Splitter) Feed(part []byte) []byte {
	var out []byte
	for len(part) > 0 {
		end := bytes.IndexByte(part, '\n')
		whole := end >= 0
		if !whole {
			end = len(part)
		}
		// A line of exactly max bytes is not cut. A longer line is cut there, and its other bytes
		// become further lines.
		take := min(end, s.Max-len(s.line))
		s.line = append(s.line, part[:take]...)
		part = part[take:]
		switch {
		case take == end && whole:
			part = part[1:]
			out = s.emit(out)
		case len(s.line) == s.Max && len(part) > 0:
			out = s.emit(out)
		}
	}
	return out
}

// Flush returns the unfinished line at the end of the stream, or nil.
func (s *Splitter) Flush() []byte {
	if len(s.line) == 0 {
		return nil
	}
	return s.emit(nil)
}

// emit appends the unfinished line to out, and clears it.
func (s *Splitter) emit(out []byte) []byte {
	out = append(out, s.Prefix...)
	out = append(out, s.line...)
	s.line = s.line[:0]
	return append(out, '\n')
}
