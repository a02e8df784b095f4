package wire

import (
	"strings"
)

// SplitIDs splits a list at commas and spaces, and drops empty parts.
func SplitIDs(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}
