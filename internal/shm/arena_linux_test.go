package shm

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// An arena allocates vectors that are zero and do not overlap, and frees them.
func TestArena(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 64 * pageSize
		a, err := NewArena(size)
		if err != nil {
			t.Fatal(err)
		}
		var held [][]byte
		room := size
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(held) > 0 && rapid.Bool().Draw(t, "free") {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				room += cap(held[i])
				if err := a.Free(held[i]); err != nil {
					t.Fatal(err)
				}
				held = append(held[:i], held[i+1:]...)
				continue
			}
			n := rapid.IntRange(1, 9*pageSize).Draw(t, "bytes")
			b, err := a.Alloc(n)
			if err != nil {
				if room >= 64*pageSize/2+9*pageSize && len(held) == 0 {
					t.Fatalf("%d bytes: %v", n, err)
				}
				continue
			}
			for i, c := range b {
				if c != 0 {
					t.Fatalf("byte %d of %d is %d", i, n, c)
				}
				b[i] = byte(len(held) + 1)
			}
			room -= cap(b)
			held = append(held, b)
		}
		for _, b := range held {
			first := b[0]
			for i, c := range b {
				if c != first {
					t.Fatalf("byte %d is %d, others %d: pieces overlap", i, c, first)
				}
			}
			if v, ok := at(a.Bytes(), a.Ref(b), len(b)); !ok || unsafe.SliceData(v) != unsafe.SliceData(b) {
				t.Fatal("its ref refers to other memory")
			}
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
		for i, b := range held {
			b[0]++ // the memory stays mapped until all vectors are free
			if err := a.Free(b); err != nil {
				t.Fatalf("piece %d after Close: %v", i, err)
			}
		}
	})
}

// Arenas whose size is a power of two begin at different addresses modulo 256 MiB. Otherwise their vectors could compete for the
// same lines of a cache.
func TestArenasApart(t *testing.T) {
	const low = 1<<28 - 1
	begins := map[uintptr]int{}
	for i := range 8 {
		a, err := NewArena(1 << 30)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		begin := addressOf(a.Bytes()) & low
		if k, ok := begins[begin]; ok {
			t.Errorf("arenas %d and %d both begin at %#x of 256 MiB", k, i, begin)
		}
		begins[begin] = i
	}
}

func TestArenaRefuses(t *testing.T) {
	a, err := NewArena(4 * pageSize)
	if err != nil {
		t.Fatal(err)
	}
	b, err := a.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"nothing":     second(a.Alloc(0)),
		"too much":    second(a.Alloc(4 * pageSize)),
		"of the heap": a.Free(make([]byte, 8)),
		"a part":      a.Free(b[1:]),
		"once":        a.Free(b),
		"twice":       a.Free(b),
	} {
		if (err == nil) != (name == "once") && name != "twice" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if r := a.Ref(make([]byte, 8)); r != 0 {
		t.Errorf("ordinary memory has the ref %d", r)
	}
	for _, r := range []Ref{0, 1 << 62, 4*pageSize - 3} {
		if _, ok := at(a.Bytes(), r, 8); ok {
			t.Errorf("invalid ref %d was accepted", r)
		}
	}
	if err := errors.Join(a.Close(), a.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Alloc(1); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// Empty memory cannot be opened.
func TestOpenRefusesNothing(t *testing.T) {
	if m, err := newMemory(0); err == nil {
		t.Errorf("opened %d bytes", len(m.Bytes()))
	}
}

// Memory of another process is refused if that process could shrink it.
func TestOpenRefuses(t *testing.T) {
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, pageSize); err != nil {
		t.Fatal(err)
	}
	if m, err := Open(os.NewFile(uintptr(fd), "unsealed")); err == nil {
		t.Errorf("opened %d bytes that can go away", len(m.Bytes()))
	}
	m, err := NewMemory(3 * pageSize)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.File().Truncate(0); err == nil {
		t.Error("shrank")
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

// NewMemory returns an error for more memory than the system has available.
func TestNewMemoryTooMuch(t *testing.T) {
	m, err := NewMemory(available() + 1<<30)
	if err == nil {
		t.Error(m.Close())
	}
	if a := available(); a < 1<<20 || a > 1<<50 {
		t.Errorf("%d bytes are available", a)
	}
	for text, want := range map[string]int{"MemAvailable:  3 kB\n": 3 << 10, "MemFree: 3 kB\nMemAvailable: x kB\n": math.MaxInt, "": math.MaxInt} {
		if got := memAvailable([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// The room is the limit minus the memory in use, and the smallest over the control group and its ancestors. This holds for both
// versions of control groups.
func TestRoomOfGroups(t *testing.T) {
	of := []byte("3:cpu:/x\n2:hugetlb,memory:/old/job\n0::/new/job\n")
	for _, test := range []struct {
		groups groups
		dir    string
		files  map[string]string
		want   int
	}{
		{version1(), "/old/job", map[string]string{
			"old/job/memory.limit_in_bytes": "9000", "old/job/memory.usage_in_bytes": "1000\n", "memory.limit_in_bytes": "9223372036854771712",
			"memory.usage_in_bytes": "5", "memory.stat": "total_inactive_file 7\n"}, 8000},
		{version2(), "/new/job", map[string]string{
			"new/job/memory.max": "max\n", "new/memory.max": "5000", "new/memory.current": "3000", "new/memory.stat": "file 1\ninactive_file 100\n"}, 2100},
		{version2(), "/new/job", map[string]string{"memory.max": "5000", "memory.current": "6000"}, 0}, // in a container
		{version2(), "/new/job", nil, math.MaxInt},
	} {
		g := test.groups
		if got := g.dirOf(of); got != test.dir {
			t.Errorf("the group is %q, want %q", got, test.dir)
		}
		g.mount = t.TempDir()
		for name, text := range test.files {
			name = filepath.Join(g.mount, name)
			if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if got := g.room(test.dir); got != test.want {
			t.Errorf("%v leaves %d, want %d", test.files, got, test.want)
		}
	}
	if got := version1().dirOf([]byte("0::/new\n")); got != "" || version1().room(got) != math.MaxInt {
		t.Errorf("group %q of a version that is not in use", got)
	}
}

// An arena over memory of another process has its vectors in place, allocates behind them, and keeps them at its end.
func TestAdoptArena(t *testing.T) {
	const used = 3*pageSize - 100
	m, err := newMemory(64 * pageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	m.Bytes()[7] = 1
	a, err := AdoptArena(m.File(), used)
	if err != nil {
		t.Fatal(err)
	}
	if a.Bytes()[7] != 1 || a.Ref(a.Bytes()[:used]) != 1 || a.Freed(a.Bytes()[:used]) {
		t.Errorf("byte 7 is %d, at %d, freed: %t", a.Bytes()[7], a.Ref(a.Bytes()[:used]), a.Freed(a.Bytes()[:used]))
	}
	v, err := a.Alloc(61 * pageSize)
	if err != nil {
		t.Fatal(err)
	}
	if at := a.Ref(v); at != 3*pageSize+1 {
		t.Errorf("allocated at %d", at)
	}
	if _, err := a.Alloc(1); err == nil {
		t.Error("allocated within the memory of the other process")
	}
	if err := errors.Join(a.Free(v), a.Close()); err != nil {
		t.Fatal(err)
	}
	a.Bytes()[8] = 1 // it stays mapped
	if m.Bytes()[8] != 1 {
		t.Error("the memory is not shared any more")
	}
}

// AdoptArena refuses memory that could shrink, and less than the other process uses.
func TestAdoptArenaRefused(t *testing.T) {
	m, err := newMemory(pageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	open, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	unsealed := os.NewFile(uintptr(fd), "test")
	defer unsealed.Close()
	if err := unsealed.Truncate(pageSize); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file *os.File
		used int
	}{"nothing": {m.File(), 0}, "too much": {m.File(), pageSize + 1}, "no seals": {unsealed, 1}, "no memory file": {open, 1}} {
		if _, err := AdoptArena(c.file, c.used); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
