package shm

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// seals keep a file at its size, so that no process can take away the pages under another
// one, which would end that with a bus error.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// apart is how many addresses after a memory nothing else has. The arenas of several processes
// are mapped one after the other, and vectors have the same place in each, so that what a call
// reads and writes would be apart by whole powers of two. Measured on AMD EPYC, such calls take
// up to 1.8 times as long. What explains it: the first cache looks for lines by a hash of low
// bits of their addresses (Lipp et al., Take A Way, AsiaCCS 2020, section 3, of older models),
// so that such vectors are one to it, and each access to one throws out the other.
const apart = 37 * pageSize

// Memory is a file without a name that is mapped into this process.
type Memory struct {
	file   *os.File
	mapped []byte // and, after its end, what sets it apart
}

// NewMemory makes shared memory of size bytes, all zero, every page of it reserved.
func NewMemory(size int) (*Memory, error) {
	m, err := newMemory(size)
	if err != nil {
		return nil, err
	}
	if err := m.reserve(0, size); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// newMemory makes memory of which no page is reserved.
func newMemory(size int) (*Memory, error) {
	fd, err := unix.MemfdCreate("elrun", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("shm: make a memory file: %w", err)
	}
	file := os.NewFile(uintptr(fd), "memfd:elrun")
	if err := file.Truncate(int64(size)); err != nil {
		return nil, errors.Join(fmt.Errorf("shm: memory of %d bytes: %w", size, err), file.Close())
	}
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, errors.Join(fmt.Errorf("shm: seal memory: %w", err), file.Close())
	}
	return Open(file)
}

// Open maps memory that another process has made, and takes over the file, also if it
// fails. A file that could shrink is refused, and one of no bytes.
func Open(file *os.File) (*Memory, error) {
	m, err := open(file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("shm: open memory: %w", err), file.Close())
	}
	return m, nil
}

func open(file *os.File) (*Memory, error) {
	has, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("read its seals: %w", err)
	}
	if has&seals != seals {
		return nil, fmt.Errorf("its seals are %#x, want %#x: it could shrink", has, seals)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 {
		return nil, errors.New("it is empty")
	}
	mapped, err := unix.Mmap(int(file.Fd()), 0, int(info.Size())+apart, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", info.Size(), err)
	}
	_ = unix.Madvise(mapped, unix.MADV_DONTDUMP) // a core file without it is as good
	return &Memory{file, mapped}, nil
}

// reserve provides pages for a part of the memory. The kernel would rather kill a process
// than refuse, so it is not asked for more than there is.
func (m *Memory) reserve(offset, size int) error {
	if room := available(); size > room {
		return fmt.Errorf("shm: reserve %d bytes of memory: %d are available", size, room)
	}
	if err := unix.Fallocate(int(m.file.Fd()), 0, int64(offset), int64(size)); err != nil {
		return fmt.Errorf("shm: reserve %d bytes: %w", size, err)
	}
	return nil
}

// release gives the pages of a part of the memory back.
func (m *Memory) release(offset, size int) error {
	return unix.Fallocate(int(m.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(offset), int64(size))
}

// again maps the same memory a second time.
func (m *Memory) again() (*Memory, error) {
	fd, err := unix.FcntlInt(m.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("shm: duplicate the file of a memory: %w", err)
	}
	return Open(os.NewFile(uintptr(fd), m.file.Name()))
}

// detach puts memory of this process's own, zero, in the place of a part. The file keeps what
// it has there.
func (m *Memory) detach(offset, size int) error {
	const access, how = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_FIXED
	if _, err := unix.MmapPtr(-1, 0, unsafe.Pointer(&m.mapped[offset]), uintptr(size), access, how); err != nil {
		return fmt.Errorf("shm: detach %d bytes of memory: %w", size, err)
	}
	return nil
}

// Bytes is the memory. It must not be touched after Close.
func (m *Memory) Bytes() []byte {
	size := len(m.mapped) - apart
	return m.mapped[:size:size]
}

// File is what other processes open. Memory owns it.
func (m *Memory) File() *os.File { return m.file }

// Close unmaps the memory. Others that have it keep it.
func (m *Memory) Close() error {
	return errors.Join(unix.Munmap(m.mapped), m.file.Close())
}
