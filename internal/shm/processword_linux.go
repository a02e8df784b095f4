package shm

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ProcessWord is a robust word that this process holds until its program ends. It lies in memory of
// its own, whose file another process gives to a WordWatch.
type ProcessWord struct {
	memory  *Memory
	list    robustHead
	release chan struct{} // closed by Release
	holding sync.WaitGroup
}

// HoldWord makes a word and a thread that holds it, and some bytes of memory beside it, see Rest. The thread only sleeps. The caller calls
// Release if the program goes on without what the word stands for.
func HoldWord(rest int) (*ProcessWord, error) {
	memory, err := namedMemory("word", pageSize+rest)
	if err != nil {
		return nil, err
	}
	if err := memory.reserve(0, pageSize+rest); err != nil {
		return nil, errors.Join(err, memory.Close())
	}
	w := &ProcessWord{memory: memory, release: make(chan struct{})}
	held := make(chan error)
	w.holding.Go(func() { w.hold(held) })
	if err := <-held; err != nil {
		return nil, errors.Join(fmt.Errorf("shm: hold a robust futex: %w", err), memory.Close())
	}
	return w, nil
}

// hold is the body of the thread that holds the word. It reports to held when it holds the word, or
// why it cannot.
func (p *ProcessWord) hold(held chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	words := wordIn(p.memory)
	restore, err := p.list.install(words)
	if err != nil {
		held <- err
		return
	}
	defer restore()
	words[0].word.Store(uint32(unix.Gettid()) | futexWaiters)
	held <- nil
	<-p.release
	words[0].word.Store(0)
	wakeWord(&words[0].word)
}

// File returns the file of the memory. The word owns it.
func (p *ProcessWord) File() *os.File { return p.memory.File() }

// Rest returns the memory beside the word. It stays mapped after Release.
func (p *ProcessWord) Rest() []byte { return p.memory.Bytes()[pageSize:] }

// ReadRest reads the memory beside the word from a file that another process has given, into rest. It maps nothing.
func ReadRest(file *os.File, rest []byte) error {
	_, err := file.ReadAt(rest, pageSize)
	return err
}

// Release gives the word back: the end of the process is not reported from now on.
func (p *ProcessWord) Release() error {
	close(p.release)
	p.holding.Wait()
	if len(p.Rest()) > 0 {
		return p.memory.file.Close()
	}
	return p.memory.Close()
}

// wordIn returns the word of a memory, which has a page at least.
func wordIn(memory *Memory) []robustWord {
	return unsafe.Slice((*robustWord)(unsafe.Pointer(unsafe.SliceData(memory.Bytes()))), 1)
}

// WordWatch waits for the ends of programs that hold a ProcessWord. Its threads sleep in the kernel
// while nothing changes. The zero value is ready. It is safe for concurrent use.
type WordWatch struct {
	mu      sync.Mutex // guards threads and the fields words of the threads
	threads []*wordThread
}

// wordThread is a thread that waits for words. It ends when it has none.
type wordThread struct {
	changed atomic.Uint32 // a futex word: how often words has changed
	words   []*WatchedWord
}

// wordsPerThread is the number of words for which a thread waits: as many as futex_waitv takes,
// less the word changed.
const wordsPerThread = 127

// WatchedWord is a word of another process.
type WatchedWord struct {
	watch  *WordWatch
	thread *wordThread
	memory *Memory
	held   uint32        // the value of the word since it is watched
	died   chan struct{} // closed when the kernel has marked the word
	closed bool          // guarded by WordWatch.mu
}

// Watch begins to wait for the end of the program that holds the word in a file. It owns the file,
// and closes it on failure. The file comes from another process, and is checked. If this process
// runs Go code on one thread only, Watch fails: a thread that enters the wait would hold up all
// others for up to 10 ms.
func (w *WordWatch) Watch(file *os.File) (*WatchedWord, error) {
	if runtime.GOMAXPROCS(0) < 2 {
		return nil, errors.Join(ErrUnsupported, file.Close())
	}
	memory, err := openWord(file)
	if err != nil {
		return nil, err
	}
	return w.add(memory), nil
}

// WatchForeign begins to wait for the end of a program in another language, one of whose threads holds
// a robust lock that lies at the beginning of the file: a futex word with the ID of the thread, as the
// kernel's robust lists want it, such as a robust mutex of glibc. The thread may have entered the lock
// in its robust list without FUTEX_WAITERS; WatchForeign adds this bit. It owns the file, and closes it
// on failure. One call waits in one thread, also where this process runs Go code on one thread only: the
// thread enters its wait once, as nothing changes until the program ends.
func WatchForeign(file *os.File) (*WatchedWord, error) {
	memory, err := openWord(file)
	if err != nil {
		return nil, err
	}
	at := &wordIn(memory)[0].word
	for {
		value := at.Load()
		if value == 0 {
			return nil, errors.Join(errors.New("shm: no thread holds the word of the program"), memory.Close())
		}
		if at.CompareAndSwap(value, value|futexWaiters) { // else the kernel would wake nobody
			return new(WordWatch).add(memory), nil
		}
	}
}

// openWord maps the file of a word, which it owns.
func openWord(file *os.File) (*Memory, error) {
	if !canWait() {
		return nil, errors.Join(ErrUnsupported, file.Close())
	}
	memory, err := Open(file)
	if err != nil {
		return nil, err
	}
	if len(memory.Bytes()) < pageSize {
		return nil, errors.Join(fmt.Errorf("shm: a word in %d bytes of memory, want %d", len(memory.Bytes()), pageSize), memory.Close())
	}
	return memory, nil
}

// add begins to wait for the word in a memory.
func (w *WordWatch) add(memory *Memory) *WatchedWord {
	word := &WatchedWord{watch: w, memory: memory, held: wordIn(memory)[0].word.Load(), died: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	i := slices.IndexFunc(w.threads, func(t *wordThread) bool { return len(t.words) < wordsPerThread })
	if i < 0 {
		i = len(w.threads)
		w.threads = append(w.threads, new(wordThread))
		go w.run(w.threads[i])
	}
	word.thread = w.threads[i]
	word.thread.words = append(word.thread.words, word)
	word.thread.change()
	return word
}

// canWait reports whether the kernel has futex_waitv.
func canWait() bool {
	_, _, failed := unix.RawSyscall(unix.SYS_FUTEX_WAITV, 0, 0, 0)
	return failed == unix.EINVAL
}

// change wakes the thread because its words have changed.
func (w *wordThread) change() {
	w.changed.Add(1)
	wakeWord(&w.changed)
}

// Died returns a channel that is closed when the program has ended: its process dies, it has begun
// another program (exec), or the thread that held the word has ended. At that time the kernel has
// not freed the memory of the process yet.
func (w *WatchedWord) Died() <-chan struct{} { return w.died }

// Close ends the wait. Died is not closed afterwards.
func (w *WatchedWord) Close() {
	w.watch.mu.Lock()
	defer w.watch.mu.Unlock()
	w.closed = true
	w.thread.change()
}

// run is the body of a thread.
func (w *WordWatch) run(t *wordThread) {
	var waits [1 + wordsPerThread]futexWait
	for {
		n := w.expect(t, waits[:])
		if n == 1 {
			return
		}
		// If the kernel fails, the ends of these programs are not reported.
		if !waitForAny(waits[:n]) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.remove(t)
			return
		}
	}
}

// expect reports the words of a thread that the kernel has marked, drops words that are closed,
// marked or given back, and writes the waits for the others. It returns the number of waits, and 1 if
// no word is left: then it has removed the thread.
func (w *WordWatch) expect(t *wordThread, waits []futexWait) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	waits[0].expect(&t.changed, t.changed.Load())
	n := 1
	t.words = slices.DeleteFunc(t.words, func(word *WatchedWord) bool {
		at := &wordIn(word.memory)[0].word
		value := at.Load()
		switch {
		case word.closed:
		case value == ownerDied:
			close(word.died)
		case value != 0 && value == word.held:
			waits[n].expect(at, value)
			n++
			return false
		}
		_ = word.memory.Close() // nothing was written, so an error loses nothing
		return true
	})
	if n == 1 {
		w.remove(t)
	}
	return n
}

// remove removes a thread that ends. mu is held.
func (w *WordWatch) remove(t *wordThread) {
	w.threads = slices.DeleteFunc(w.threads, func(o *wordThread) bool { return o == t })
}
