//go:build unix && (!linux || race)

package kernel

import "syscall"

// HaveCalls tells whether there are Read and WriteTwo. The race detector learns from the calls
// of package syscall that what is read was written before, and elsewhere there is no other way.
const HaveCalls = true

// Read is read(2).
func Read(fd uintptr, b []byte) (int, error) { return count(syscall.Read(int(fd), b)) }

// WriteTwo is writev(2), or nearly so: where there is no room for b it is not an error to
// have written a.
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

// count is what a call has returned, of which -1 stands for nothing.
func count(n int, err error) (int, error) { return max(n, 0), err }
