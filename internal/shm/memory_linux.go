package shm

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// seals fix the size of a file. Without them a process could truncate the file, and another process
// that reads it would get a bus error (SIGBUS).
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// aliasPadding is the address space that is left unused after each Memory, against cache aliasing.
// The arenas of several processes are mapped one after the other, and vectors have the same offset
// in each, so the vectors of a call would be a power of two apart. On AMD EPYC such calls take up
// to 1.8 times as long. The likely cause is the way predictor of the first-level cache: it finds
// lines by a hash of low address bits (Lipp et al., Take A Way, AsiaCCS 2020, section 3, for older
// models). Vectors at such distances have the same hash, so an access to one evicts the line of the
// other.
const aliasPadding = 37 * pageSize

// Memory is a file without a name that is mapped into this process.
type Memory struct {
	file   *os.File
	mapped []byte // the memory and aliasPadding after it
}

// NewMemory makes shared memory of size bytes, all zero, every page of it reserved: a later access
// cannot fail for lack of memory, which would kill the process by SIGBUS. The caller closes it.
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

// newMemory makes memory without reserved pages. Alloc of an Arena reserves them later.
func newMemory(size int) (*Memory, error) { return namedMemory("elrun", size) }

// namedMemory is newMemory with the name of the file in /proc.
func namedMemory(name string, size int) (*Memory, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("shm: make a memory file: %w", err)
	}
	file := os.NewFile(uintptr(fd), "memfd:"+name)
	if err := file.Truncate(int64(size)); err != nil {
		return nil, errors.Join(fmt.Errorf("shm: memory of %d bytes: %w", size, err), file.Close())
	}
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return nil, errors.Join(fmt.Errorf("shm: seal memory: %w", err), file.Close())
	}
	return Open(file)
}

// Open maps memory that another process has made. It owns the file, and closes it on failure. It
// refuses a file that could shrink, and an empty one.
func Open(file *os.File) (*Memory, error) {
	m, err := open(file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("shm: open memory: %w", err), file.Close())
	}
	return m, nil
}

// open is Open without the error handling. The file comes from another process, so its seals and
// size are checked.
func open(file *os.File) (*Memory, error) {
	has, err := unix.FcntlInt(file.Fd(), unix.F_GET_SEALS, 0)
	if err != nil {
		return nil, fmt.Errorf("read its seals: %w", err)
	}
	if has&seals != seals {
		return nil, fmt.Errorf("its seals are %#x, want %#x: another process could shrink it", has, seals)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 {
		return nil, errors.New("it is empty")
	}
	mapped, err := unix.Mmap(int(file.Fd()), 0, int(info.Size())+aliasPadding, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", info.Size(), err)
	}
	_ = unix.Madvise(mapped, unix.MADV_DONTDUMP) // keeps core files small; nothing depends on it
	return &Memory{file, mapped}, nil
}

// reserve allocates the pages of a part of the memory. It refuses to reserve more than is
// available: the kernel would not refuse, but kill a process (OOM killer).
func (m *Memory) reserve(offset, size int) error {
	if room := available(); size > room {
		return fmt.Errorf("shm: reserve %d bytes of memory: %d are available", size, room)
	}
	if err := unix.Fallocate(int(m.file.Fd()), 0, int64(offset), int64(size)); err != nil {
		return fmt.Errorf("shm: reserve %d bytes: %w", size, err)
	}
	return nil
}

// release frees the pages of a part of the memory. They read as zero afterwards.
func (m *Memory) release(offset, size int) error {
	return unix.Fallocate(int(m.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(offset), int64(size))
}

// again returns a second mapping of the memory.
func (m *Memory) again() (*Memory, error) { return openAgain(m.file) }

// openAgain is Open for a file that stays with the caller.
func openAgain(file *os.File) (*Memory, error) {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("shm: duplicate the file of a memory: %w", err)
	}
	return Open(os.NewFile(uintptr(fd), file.Name()))
}

// detach replaces the mapping of a part of the memory by private zero pages. The file keeps its
// content, and other processes keep their mapping.
func (m *Memory) detach(offset, size int) error {
	const access, how = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_FIXED
	if _, err := unix.MmapPtr(-1, 0, unsafe.Pointer(&m.mapped[offset]), uintptr(size), access, how); err != nil {
		return fmt.Errorf("shm: detach %d bytes of memory: %w", size, err)
	}
	return nil
}

// Bytes returns the memory. It must not be touched after Close.
func (m *Memory) Bytes() []byte {
	size := len(m.mapped) - aliasPadding
	return m.mapped[:size:size]
}

// File returns the file that other processes give to Open. The Memory owns it.
func (m *Memory) File() *os.File { return m.file }

// Close unmaps the memory. Other mappings of it stay.
func (m *Memory) Close() error {
	return errors.Join(unix.Munmap(m.mapped), m.file.Close())
}

// available returns how many bytes of memory this process can take before the kernel would kill a
// process (OOM killer): the available memory of the system, or the memory that the limits of this
// process's control groups leave, if that is less. A limit that cannot be read does not count.
func available() int {
	room := math.MaxInt
	if b, err := os.ReadFile("/proc/meminfo"); err == nil {
		room = memAvailable(b)
	}
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return room
	}
	for _, g := range []groups{version1(), version2()} {
		room = min(room, g.room(g.dirOf(b)))
	}
	return room
}

// memAvailable reads the kernel's estimate, in KiB, from /proc/meminfo, and returns bytes. Without
// an estimate the result is unlimited.
func memAvailable(meminfo []byte) int {
	for l := range bytes.Lines(meminfo) {
		f := bytes.Fields(l)
		if len(f) < 2 || string(f[0]) != "MemAvailable:" {
			continue
		}
		if n, err := strconv.Atoi(string(f[1])); err == nil && n < math.MaxInt>>10 {
			return n << 10
		}
	}
	return math.MaxInt
}

// groups are the control groups of one version that limit memory.
type groups struct {
	controller string // as /proc/self/cgroup names it
	// mount is the path at which the hierarchy is mounted.
	mount     string
	most, now string // files; with the limit and the usage in bytes
	files     string // key in memory.stat: the memory of cached files that were not used recently
}

// version1 describes the memory controller of cgroup version 1.
func version1() groups {
	return groups{"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
}

// version2 describes the unified hierarchy of cgroup version 2, whose controller name is empty.
func version2() groups {
	return groups{"", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"}
}

// dirOf reads the path of a process's group out of its /proc/self/cgroup, whose lines are
// "number:controllers:path"; "" if there is none.
func (g groups) dirOf(b []byte) string {
	for l := range bytes.Lines(b) {
		f := bytes.SplitN(bytes.TrimSpace(l), []byte(":"), 3)
		if len(f) == 3 && slices.ContainsFunc(bytes.Split(f[1], []byte(",")), func(c []byte) bool { return string(c) == g.controller }) {
			return string(f[2])
		}
	}
	return ""
}

// room returns how many bytes a group may still take, by its own limit and the limits of the groups
// above it. In a container /proc/self/cgroup may give a path that exists only on the host. Then the
// mount point is the group of the container, and room starts there.
func (g groups) room(dir string) int {
	if dir == "" {
		return math.MaxInt
	}
	if _, err := os.Stat(filepath.Join(g.mount, dir)); err != nil {
		dir = "/"
	}
	room := math.MaxInt
	for {
		room = min(room, g.left(filepath.Join(g.mount, dir)))
		if dir == "/" || dir == "." {
			return room
		}
		dir = filepath.Dir(dir)
	}
}

// left returns how many bytes a group may still take by its own limit. Memory of cached files that
// were not used recently counts as free, because the kernel drops it before it kills a process.
func (g groups) left(group string) int {
	most, err := readNumber(filepath.Join(group, g.most))
	if err != nil {
		return math.MaxInt // also for "max"
	}
	now, err := readNumber(filepath.Join(group, g.now))
	if err != nil {
		return math.MaxInt
	}
	stat, _ := os.ReadFile(filepath.Join(group, "memory.stat")) // if it cannot be read, no cached file counts as free
	for l := range bytes.Lines(stat) {
		if n, ok := bytes.CutPrefix(bytes.TrimSpace(l), []byte(g.files+" ")); ok {
			files, _ := strconv.Atoi(string(n))
			now = max(0, now-files)
		}
	}
	return max(0, most-now)
}

// readNumber returns the integer in a file. "max", which stands for no limit, is an error.
func readNumber(path string) (int, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(bytes.TrimSpace(b)))
}
