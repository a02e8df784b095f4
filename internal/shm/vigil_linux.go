package shm

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What the kernel takes and writes, from its futex.h.
const (
	futexWaiters   = 1 << 31 // in a word: somebody is to be woken
	futexOwnerDied = 1 << 30
	futexWake      = 1 // for SYS_FUTEX
	futex32        = 2 // for SYS_FUTEX_WAITV: the word has 32 bits
)

// Vigil is the thread by which this rank hears when the processes of others die, and they
// when this one does.
type Vigil struct {
	segment *Segment
	died    func(rank int)
	will    will
	keeping sync.WaitGroup

	mu   sync.Mutex    // of what changes over, and of this rank's cells
	over atomic.Uint32 // 1 when it has ended; a futex, too
}

// KeepVigil calls died, from one goroutine, with each rank whose process dies from now on
// without having ended its own vigil. All ranks do that, or those that do hear of each
// other. It comes before the first Revoke, which ends it; Close does that, too. Where the
// system does not have what it takes, nothing is ever heard.
func (s *Segment) KeepVigil(died func(rank int)) *Vigil {
	v := &Vigil{segment: s, died: died}
	s.vigil = v
	v.keeping.Go(v.keep)
	return v
}

// Close ends the vigil, after which the memory may be unmapped.
func (v *Vigil) Close() {
	v.end()
	v.keeping.Wait()
}

// end lets the thread know that it is over, after which the end of this process is no death
// to anybody. It does not wait.
func (v *Vigil) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over.Load() != 0 {
		return // and the memory may be unmapped
	}
	v.sign(0)
	v.over.Store(1)
	wakeWord(&v.over)
}

// keep is the life of the thread. It leaves that to the Go runtime as it was: if the thread
// ended, so would child processes that are to die with the one that started them.
func (v *Vigil) keep() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer hasten()()
	var pins runtime.Pinner
	pins.Pin(v) // the kernel keeps the will's address
	defer pins.Unpin()
	before, err := robustList()
	if err != nil {
		return
	}
	v.will.write(v.segment.cells(v.segment.rank))
	if setRobustList(uintptr(unsafe.Pointer(&v.will))) != nil {
		return
	}
	if v.begin() {
		v.watch()
	}
	v.end()
	_ = setRobustList(before) // it could be set a moment ago
}

// begin lets the others watch this thread, unless the vigil is over already.
func (v *Vigil) begin() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.over.Load() != 0 {
		return false
	}
	v.sign(uint32(unix.Gettid()) | futexWaiters)
	for r := range v.segment.size {
		wakeWord(v.word(v.segment.rank, r)) // who was there before waits for that
	}
	return true
}

// sign writes this rank's words.
func (v *Vigil) sign(value uint32) {
	for r := range v.segment.size {
		v.word(v.segment.rank, r).Store(value)
	}
}

// word is that by which the hearer hears of a rank's death.
func (v *Vigil) word(rank, hearer int) *atomic.Uint32 {
	return &v.segment.cells(rank)[hearer].word
}

// watch tells of deaths until the vigil is over.
func (v *Vigil) watch() {
	told := uint64(1) << v.segment.rank // a bit for each rank that is not waited for
	var waits [1 + MaxRanks]futexWait
	for v.over.Load() == 0 {
		n := 1
		waits[0].expect(&v.over, 0)
		for r := range v.segment.size {
			if told&(1<<r) != 0 {
				continue
			}
			word := v.word(r, v.segment.rank)
			value := word.Load()
			if value&futexOwnerDied != 0 {
				told |= 1 << r
				v.died(r)
				continue
			}
			waits[n].expect(word, value)
			n++
		}
		if !waitForAny(waits[:n]) {
			return
		}
	}
}

// shortTurn is for how long the thread asks to run at a time. Since Linux 6.12 who asks for
// less than others is let run as soon as it is woken.
const shortTurn = 100 * time.Microsecond

// hasten gives this thread short turns, and returns what undoes it. When a process is killed
// the others of its host compute or yield on all cores, and two threads have to run before
// anybody hears of it: that of the dead, to its end, and that of the hearer. Each would wait
// some milliseconds for its turn.
func hasten() (undo func()) {
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil || before.Policy != unix.SCHED_NORMAL {
		return func() {}
	}
	short := *before
	short.Runtime = uint64(shortTurn)
	if unix.SchedSetAttr(0, &short, 0) != nil {
		return func() {} // it may take longer
	}
	return func() { _ = unix.SchedSetAttr(0, before, 0) }
}

// will is the kernel's robust_list_head: what it is to do when the thread dies. The nodes of
// its list are in memory of this process, where no other one can lead the kernel astray;
// each is as far from its cell as the others.
type will struct {
	first  uintptr // the first node
	offset uintptr // from a node to the word that it is of
	doing  uintptr // 0: all that matters is in the list
	nodes  [MaxRanks]node
}

// headSize is the part of a will that the kernel knows.
const headSize = unsafe.Offsetof(will{}.nodes)

// node is a member of the list, as long as a cell. It begins with the address of the next
// one, or after the last with that of the will.
type node [cellSize / int(unsafe.Sizeof(uintptr(0)))]uintptr

// write makes a will for those cells.
func (w *will) write(cells []cell) {
	first := uintptr(unsafe.Pointer(&w.nodes))
	w.first = first
	w.offset = uintptr(unsafe.Pointer(unsafe.SliceData(cells))) - first
	for i := range cells {
		w.nodes[i][0] = first + uintptr((i+1)*cellSize)
	}
	w.nodes[len(cells)-1][0] = uintptr(unsafe.Pointer(w))
}

// robustList returns the list that this thread has; that of a C library, perhaps.
func robustList() (head uintptr, err error) {
	var size uintptr
	_, _, failed := unix.RawSyscall(unix.SYS_GET_ROBUST_LIST, 0,
		uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&size)))
	if failed != 0 {
		return 0, failed
	}
	return head, nil
}

// setRobustList gives this thread another list.
func setRobustList(head uintptr) error {
	if _, _, failed := unix.RawSyscall(unix.SYS_SET_ROBUST_LIST, head, headSize, 0); failed != 0 {
		return failed
	}
	return nil
}

// wakeWord wakes all that wait for a word.
func wakeWord(word *atomic.Uint32) {
	const all = 1<<31 - 1
	_, _, _ = unix.RawSyscall(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, all)
}

// futexWait is the kernel's futex_waitv.
type futexWait struct {
	value uint64
	at    uint64
	flags uint32
	_     uint32
}

// expect makes it wait for a change of the word from value.
func (w *futexWait) expect(word *atomic.Uint32, value uint32) {
	*w = futexWait{value: uint64(value), at: uint64(uintptr(unsafe.Pointer(word))), flags: futex32}
}

// waitForAny sleeps until one of the words is not what is expected, or for less; false if it
// cannot.
func waitForAny(waits []futexWait) bool {
	_, _, failed := unix.Syscall6(unix.SYS_FUTEX_WAITV, uintptr(unsafe.Pointer(unsafe.SliceData(waits))),
		uintptr(len(waits)), 0, 0, 0, 0)
	return failed == 0 || failed == unix.EAGAIN || failed == unix.EINTR
}
