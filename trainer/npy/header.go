package npy

import (
	"math"
	"strings"
)

// header has the values of the dictionary at the beginning of a file.
type header struct {
	descr   string // element type, as in <f4
	fortran bool   // column-major order
	shape   []int  // dimensions, the first one outermost
}

// maxDims is NumPy's limit of the number of dimensions.
const maxDims = 64

// parseHeader parses the header, a Python dictionary literal with these three keys in any order,
// without a Python interpreter:
//
//	{'descr': '<f4', 'fortran_order': False, 'shape': (60000, 28, 28), }
//
// Blanks may surround the dictionary, and a line feed may follow, because NumPy pads the header.
func parseHeader(text string) (header, error) {
	var h header
	s := scanner{rest: strings.TrimRight(text, " \n")}
	seen := make(map[string]bool)
	s.want('{')
	for s.err == nil && !s.accept('}') {
		key := s.quoted()
		s.want(':')
		if s.err == nil && seen[key] {
			s.fail("the key %q occurs twice", key)
		}
		// Method value fails for an unknown key, so three different keys are the three known keys.
		seen[key] = true
		s.value(&h, key)
		if !s.accept(',') {
			s.want('}')
			break
		}
	}
	if s.err == nil && s.rest != "" {
		s.fail("%q after the dictionary", shorten(s.rest))
	}
	if s.err == nil && len(seen) != 3 {
		s.fail("%d keys, want descr, fortran_order and shape", len(seen))
	}
	return h, s.err
}

// scanner parses Python literals from left to right. After the first error its methods do nothing.
// So parseHeader checks for an error only in loops and before decisions.
type scanner struct {
	rest string
	err  error
}

// value parses the value of a key into its field of h.
func (s *scanner) value(h *header, key string) {
	switch key {
	case "descr":
		if s.accept('[') {
			s.fail("elements have several fields; save each field as a separate array")
			return
		}
		h.descr = s.quoted()
	case "fortran_order":
		h.fortran = s.boolean()
	case "shape":
		h.shape = s.tuple()
	default:
		if s.err == nil {
			s.fail("unknown key %q", shorten(key))
		}
	}
}

// accept skips blanks, and then the character c if it comes next. It reports whether c came next.
func (s *scanner) accept(c byte) bool {
	if s.err != nil {
		return false
	}
	s.rest = strings.TrimLeft(s.rest, " ")
	if s.rest == "" || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// want is like accept, but a missing c is an error.
func (s *scanner) want(c byte) {
	if !s.accept(c) && s.err == nil {
		s.fail("want %q before %q", c, shorten(s.rest))
	}
}

// quoted parses a string in single or double quotes. Strings in headers have no escapes.
func (s *scanner) quoted() string {
	quote := byte('\'')
	if s.accept('"') {
		quote = '"'
	} else {
		s.want('\'')
	}
	if s.err != nil {
		return ""
	}
	end := strings.IndexByte(s.rest, quote)
	if end < 0 {
		s.fail("the string %q has no closing quote", shorten(s.rest))
		return ""
	}
	text := s.rest[:end]
	s.rest = s.rest[end+1:]
	return text
}

// boolean parses True or False.
func (s *scanner) boolean() bool {
	if s.err != nil {
		return false
	}
	s.rest = strings.TrimLeft(s.rest, " ")
	if rest, found := strings.CutPrefix(s.rest, "True"); found {
		s.rest = rest
		return true
	}
	rest, found := strings.CutPrefix(s.rest, "False")
	if !found {
		s.fail("want True or False before %q", shorten(s.rest))
	}
	s.rest = rest
	return false
}

// tuple parses a tuple of sizes.
func (s *scanner) tuple() []int {
	var sizes []int
	s.want('(')
	for s.err == nil && !s.accept(')') {
		sizes = append(sizes, s.size())
		if len(sizes) > maxDims {
			s.fail("more than %d dimensions", maxDims)
		}
		if !s.accept(',') {
			s.want(')')
			break
		}
	}
	return sizes
}

// size parses a decimal integer of 0 or more. It skips an L after it, which Python 2 wrote.
func (s *scanner) size() int {
	if s.err != nil {
		return 0
	}
	s.rest = strings.TrimLeft(s.rest, " ")
	n, digits := 0, 0
	for ; digits < len(s.rest) && '0' <= s.rest[digits] && s.rest[digits] <= '9'; digits++ {
		d := int(s.rest[digits] - '0')
		if n > (math.MaxInt-d)/10 {
			s.fail("the size %q is too large", shorten(s.rest))
			return 0
		}
		n = 10*n + d
	}
	if digits == 0 {
		s.fail("want a size before %q", shorten(s.rest))
		return 0
	}
	s.rest = strings.TrimPrefix(s.rest[digits:], "L")
	return n
}

// fail records an error, after which nothing more is parsed.
func (s *scanner) fail(format string, args ...any) { s.err = formatErrorf(format, args...) }

// shorten truncates a text for an error message.
func shorten(text string) string {
	const most = 20
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
