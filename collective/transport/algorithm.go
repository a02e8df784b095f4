package transport

import "fmt"

// Algorithm is how a call is carried out; package collective, which has the same names, says
// what each does. The values are part of the wire format.
type Algorithm uint8

// The algorithms. Auto is a wish only: a Call has the algorithm that was chosen.
const (
	Auto Algorithm = iota
	Ring
	RecursiveDoubling
	Rabenseifner
	Tree
	Direct
	SharedMemory
	TwoLevel
)

// String returns the name used in flags and logs.
func (a Algorithm) String() string {
	names := [...]string{"auto", "ring", "recursive-doubling", "rabenseifner", "tree", "direct", "shm", "two-level"}
	if int(a) < len(names) {
		return names[a]
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}
