package transport

import "fmt"

// Algorithm is the way in which a call is carried out. Package collective has the same
// names and describes each algorithm. The values are part of the wire format.
type Algorithm uint8

// The algorithms. Auto is only a request: a Call has the chosen algorithm.
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

// String returns the name of the algorithm in flags and logs.
func (a Algorithm) String() string {
	names := [...]string{"auto", "ring", "recursive-doubling", "rabenseifner", "tree", "direct", "shm", "two-level"}
	if int(a) < len(names) {
		return names[a]
	}
	return fmt.Sprintf("algorithm(%d)", uint8(a))
}
