package compress

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/elrun/elrun/collective"
)

// None is the name for no compression.
const None = "none"

// DefaultFraction is the fraction of the values for the name "topk". Lin and others (2018) reached
// full accuracy with smaller fractions.
const DefaultFraction = 0.01

// Parse returns the coding of a name: fp16, bf16, int8, topk, topk:F or topk:F:2bit, with a
// fraction 0 < F <= 0.5. It returns nil for none and for the empty name.
func Parse(name string) (collective.Coding, error) {
	kind, rest, given := strings.Cut(name, ":")
	switch {
	case kind == "topk" && given:
		return parseTopK(name, rest)
	case kind == "topk":
		return NewTopK(DefaultFraction)
	case name == "" || name == None:
		return nil, nil
	case name == "fp16":
		return Float16{}, nil
	case name == "bf16":
		return BFloat16{}, nil
	case name == "int8":
		return Int8{}, nil
	}
	return nil, fmt.Errorf("compression %q: want none, fp16, bf16, int8, topk, topk:F or topk:F:2bit", name)
}

// parseTopK parses the name of a TopK with a fraction; rest is the part after the first colon. The
// range of the fraction is checked by NewTopK.
func parseTopK(name, rest string) (collective.Coding, error) {
	fraction, width, given := strings.Cut(rest, ":")
	f, err := strconv.ParseFloat(fraction, 64)
	if err != nil {
		return nil, fmt.Errorf("compression %q: fraction: %w", name, err)
	}
	c, err := NewTopK(f)
	switch {
	case err != nil:
		return nil, err
	case !given:
		return c, nil
	case width != twoBit:
		return nil, fmt.Errorf("compression %q: %q after the fraction: want %s, or nothing for values of 16 bits", name, width, twoBit)
	}
	return c.In2Bits(), nil
}

// Name returns the canonical name of a coding, which Parse accepts, and None for nil. Peers compare
// the names of their codings, so each coding must have only one name.
func Name(c collective.Coding) string {
	if c == nil {
		return None
	}
	return c.Name()
}
