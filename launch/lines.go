package launch

import "bytes"

// maxLine is the longest line of output that stays whole, in bytes. Longer ones
// are cut into lines of this length, so that a program which never ends a line
// costs no more memory than others.
const maxLine = 64 << 10

// splitter turns a stream into whole lines with a prefix. It holds at most one
// line of max bytes.
type splitter struct {
	prefix string
	max    int
	line   []byte // begun and not yet ended
}

// feed takes the next part of the stream and returns the lines that it completes,
// each with prefix and line end, or nil. The result belongs to the caller.
func (s *splitter) feed(part []byte) []byte {
	var out []byte
	for len(part) > 0 {
		end := bytes.IndexByte(part, '\n')
		whole := end >= 0
		if !whole {
			end = len(part)
		}
		take := min(end, s.max-len(s.line))
		s.line = append(s.line, part[:take]...)
		part = part[take:]
		switch {
		case take == end && whole:
			part = part[1:]
			out = s.emit(out)
		case len(s.line) == s.max && len(part) > 0:
			out = s.emit(out)
		}
	}
	return out
}

// flush returns the line that the end of the stream left open, or nil.
func (s *splitter) flush() []byte {
	if len(s.line) == 0 {
		return nil
	}
	return s.emit(nil)
}

// emit appends the held line to out and forgets it.
func (s *splitter) emit(out []byte) []byte {
	out = append(out, s.prefix...)
	out = append(out, s.line...)
	s.line = s.line[:0]
	return append(out, '\n')
}
