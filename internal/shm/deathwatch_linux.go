package shm

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Constants of the kernel's futex.h.
const (
	futexWaiters   = 1 << 31 // in a lock word: a thread waits for the lock
	futexOwnerDied = 1 << 30 // in a lock word: its owner died
	ownerDied      = futexWaiters | futexOwnerDied
	futexWake      = 1 // for SYS_FUTEX
	futex32        = 2 // for SYS_FUTEX_WAITV: the word has 32 bits
)

// DeathWatch is a thread that reports the deaths of the other ranks' processes to this rank. The
// kernel reports the death of this thread to the other ranks.
type DeathWatch struct {
	segment *Segment
	died    func(rank int) // callback, called by the thread
	// list is the robust list of the thread, which the kernel reads when the thread dies.
	list    robustHead
	running sync.WaitGroup

	mu sync.Mutex // guards writes of ended and of this rank's words
	// ended is 1 after end. The thread waits for it together with the words of the other ranks.
	ended atomic.Uint32
}

// WatchDeaths calls the function died, from one goroutine, with each rank whose process dies from
// now on, unless that rank has ended its own death watch before. Only ranks that call WatchDeaths
// are watched. Call it before the first Revoke. Revoke and Close end it. On a kernel without robust
// futexes or futex_waitv (before Linux 5.16) the death watch reports nothing.
func (s *Segment) WatchDeaths(died func(rank int)) *DeathWatch {
	w := &DeathWatch{segment: s, died: died}
	s.deathWatch = w
	w.running.Go(w.run)
	return w
}

// Close ends the death watch. After Close the memory may be unmapped.
func (d *DeathWatch) Close() {
	d.end()
	d.running.Wait()
}

// end marks this rank as leaving, so that the end of its process is not reported to the other ranks
// as a death, and wakes the thread so that the thread ends. It does not wait.
func (d *DeathWatch) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended.Load() != 0 {
		return // and the memory may be unmapped
	}
	d.storeWords(0)
	d.ended.Store(1)
	wakeWord(&d.ended)
}

// run is the body of the thread. At the end it restores the thread's robust list and returns the
// thread to the Go runtime. It must not end the thread: the kernel sends a parent death signal
// (PR_SET_PDEATHSIG) when the thread that started the child ends, so children of this thread would
// be killed.
func (d *DeathWatch) run() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	restore, err := d.list.install(d.segment.robustWords(d.segment.rank))
	if err != nil {
		return
	}
	defer restore()
	if d.enter() {
		d.wait()
	}
	d.end()
}

// enter stores this thread as the owner of its words, so that the kernel reports its death to the
// other ranks. It returns false if the death watch has ended already.
func (d *DeathWatch) enter() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended.Load() != 0 {
		return false
	}
	d.storeWords(uint32(unix.Gettid()) | futexWaiters)
	for r := range d.segment.size {
		wakeWord(d.word(d.segment.rank, r)) // ranks that entered earlier wait for a change of the word
	}
	return true
}

// storeWords sets all words of this rank to value.
func (d *DeathWatch) storeWords(value uint32) {
	for r := range d.segment.size {
		d.word(d.segment.rank, r).Store(value)
	}
}

// word returns the lock word by which the rank hearer detects a rank's death.
func (d *DeathWatch) word(rank, hearer int) *atomic.Uint32 {
	return &d.segment.robustWords(rank)[hearer].word
}

// wait reports deaths until the death watch has ended.
func (d *DeathWatch) wait() {
	told := uint64(1) << d.segment.rank // a bit for each rank that is no longer waited for
	var waits [1 + MaxRanks]futexWait
	for d.ended.Load() == 0 {
		n := 1
		waits[0].expect(&d.ended, 0)
		for r := range d.segment.size {
			if told&(1<<r) != 0 {
				continue
			}
			word := d.word(r, d.segment.rank)
			value := word.Load()
			if value == ownerDied {
				told |= 1 << r
				d.died(r)
				continue
			}
			waits[n].expect(word, value)
			n++
		}
		// The kernel compares each word with its value before it sleeps, so a change since the
		// loads above is not missed.
		if !waitForAny(waits[:n]) {
			return
		}
	}
}

// robustHead is the kernel's robust_list_head: the list of locks that the kernel frees when the
// thread dies. The entries lie in private memory of this process, where other processes cannot
// corrupt them. All entries have the same distance to their lock words, because offset is a single
// number for the whole list.
type robustHead struct {
	head    uintptr // address of the first entry
	offset  uintptr // from an entry to its lock word
	pending uintptr // the kernel's list_op_pending; 0 means that no lock is being taken
	entries [MaxRanks]robustEntry
}

// robustHeadSize is the size of the kernel's part of robustHead.
const robustHeadSize = unsafe.Offsetof(robustHead{}.entries)

// robustEntry is an entry of the list, as long as a robustWord. It begins with the address of the
// next entry; the last entry points to the head.
type robustEntry [robustWordSize / int(unsafe.Sizeof(uintptr(0)))]uintptr

// build fills the list with the entries of words.
func (r *robustHead) build(words []robustWord) {
	first := uintptr(unsafe.Pointer(&r.entries))
	r.head = first
	r.offset = uintptr(unsafe.Pointer(unsafe.SliceData(words))) - first
	for i := range words {
		r.entries[i][0] = first + uintptr((i+1)*robustWordSize)
	}
	r.entries[len(words)-1][0] = uintptr(unsafe.Pointer(r))
}

// install makes the list of the words the robust list of this thread, to which the goroutine must be
// locked until it has called restore.
func (r *robustHead) install(words []robustWord) (restore func(), err error) {
	before, err := currentRobustList()
	if err != nil {
		return nil, err
	}
	var pins runtime.Pinner
	pins.Pin(r) // the kernel keeps the address of the list
	r.build(words)
	if err := setRobustList(uintptr(unsafe.Pointer(r))); err != nil {
		pins.Unpin()
		return nil, err
	}
	return func() {
		_ = setRobustList(before) // cannot fail, as the call above succeeded
		pins.Unpin()
	}, nil
}

// currentRobustList returns the robust list that this thread has, which may belong to a C library.
func currentRobustList() (head uintptr, err error) {
	var size uintptr
	_, _, failed := unix.RawSyscall(unix.SYS_GET_ROBUST_LIST, 0,
		uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&size)))
	if failed != 0 {
		return 0, failed
	}
	return head, nil
}

// setRobustList replaces the robust list of this thread.
func setRobustList(head uintptr) error {
	if _, _, failed := unix.RawSyscall(unix.SYS_SET_ROBUST_LIST, head, robustHeadSize, 0); failed != 0 {
		return failed
	}
	return nil
}

// wakeWord wakes all threads that wait for a word.
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

// expect sets the wait to end when the word differs from value.
func (f *futexWait) expect(word *atomic.Uint32, value uint32) {
	*f = futexWait{value: uint64(value), at: uint64(uintptr(unsafe.Pointer(word))), flags: futex32}
}

// waitForAny sleeps until one of the words differs from its expected value. It may wake up early.
// It returns false if the kernel does not support the call.
func waitForAny(waits []futexWait) bool {
	_, _, failed := unix.Syscall6(unix.SYS_FUTEX_WAITV, uintptr(unsafe.Pointer(unsafe.SliceData(waits))),
		uintptr(len(waits)), 0, 0, 0, 0)
	return failed == 0 || failed == unix.EAGAIN || failed == unix.EINTR
}
