//go:build unix && (!linux || race)

package kernel

import "syscall"

// HaveCalls is true if Read and WriteTwo are implemented. Here they use package syscall: its calls
// show the race detector that data is written before it is read, and outside Linux no other way is
// portable.
const HaveCalls = true

// Read reads into b from a non-blocking descriptor, by read(2).
func Read(fd uintptr, b []byte) (int, error) { return count(syscall.Read(int(fd), b)) }

// WriteTwo writes a and then b, as writev(2) does, but with two calls. It returns no error if a was
// written and there was no room for b.
func WriteTwo(fd uintptr, a, b []byte) (int, error) {
	n := 0
	if len(a) > 0 {
		var err error
		if n, err = count(syscall.Write(int(fd), a)); err != nil || n < len(a) || len(b) == 0 {
			return n, err
		}
	}
	m, err := count(syscall.Write(int(fd), b))
	if n > 0 {
		err = nil
	}
	return n + m, err
}

// count converts the result of a system call, where -1 stands for no bytes.
func count(n int, err error) (int, error) { return max(n, 0), err }
