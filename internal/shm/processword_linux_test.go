package shm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// holdProcessWord runs a program that holds a word and a lot of memory. It prints the number of the file of the word, and ends in
// the given way when standard input ends.
func holdProcessWord(end string) error {
	ballast := make([]byte, 300<<20)
	for i := 0; i < len(ballast); i += pageSize {
		ballast[i] = 1
	}
	word, err := HoldWord(0)
	if err != nil {
		return err
	}
	fmt.Println(word.File().Fd())
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	switch end {
	case "exec":
		return syscall.Exec("/bin/sleep", []string{"sleep", "300"}, os.Environ())
	case "exit":
		os.Exit(0)
	case "panic":
		panic(ballast[0])
	case "child": // inherits the file, and lives on
		cmd := exec.Command("/bin/sleep", "300")
		cmd.ExtraFiles, cmd.SysProcAttr = []*os.File{word.File()}, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		return cmd.Run()
	case "release":
		err := word.Release()
		fmt.Println("released")
		return errors.Join(err, unix.Pause())
	}
	return fmt.Errorf("no end %q", end)
}

// wordHolder is a process that runs holdProcessWord.
type wordHolder struct {
	*exec.Cmd
	in  io.Closer
	out *bufio.Scanner
}

// startHolder starts a process that ends in the given way. Its first line has the number of the file of its word.
func startHolder(t *testing.T, end string) wordHolder {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SHM_PROCESSWORD="+end, "GORACE=atexit_sleep_ms=0")
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return wordHolder{cmd, in, bufio.NewScanner(out)}
}

// holdWord starts a process that ends in the given way, and watches its word.
func holdWord(t *testing.T, w *WordWatch, end string) (wordHolder, *WatchedWord) {
	t.Helper()
	p := startHolder(t, end)
	word, err := w.Watch(writable(t, fmt.Sprintf("/proc/%d/fd/%s", p.Process.Pid, p.line(t))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(word.Close)
	return p, word
}

// line returns the next line of the process.
func (w wordHolder) line(t *testing.T) string {
	t.Helper()
	if !w.out.Scan() {
		t.Fatalf("no line: %v", w.out.Err())
	}
	return w.out.Text()
}

// handle returns a second handle of a file.
func handle(t *testing.T, f *os.File) *os.File {
	t.Helper()
	return writable(t, fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
}

// writable opens a file for reading and writing.
func writable(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// awaitDied waits until a word reports the end of its program.
func awaitDied(t *testing.T, word *WatchedWord) {
	t.Helper()
	select {
	case <-word.Died():
	case <-time.After(hang):
		t.Fatal("the end of the program is not reported")
	}
}

// skipWithoutWait skips a test where the kernel, or the number of processors, allows no WordWatch.
func skipWithoutWait(t *testing.T) {
	t.Helper()
	if !canWait() || runtime.GOMAXPROCS(0) < 2 {
		t.Skip("the kernel cannot wait for several words, or there is one processor")
	}
}

// The end of a program is reported however it ends: by a kill, an exit or a panic, also while a child still has the file of the word;
// and by an exec, after which the process runs on.
func TestProcessWord(t *testing.T) {
	skipWithoutWait(t)
	for _, end := range []string{"kill", "exec", "exit", "panic", "child"} {
		t.Run(end, func(t *testing.T) {
			p, word := holdWord(t, new(WordWatch), end)
			select {
			case <-word.Died():
				t.Fatal("reported while the program runs")
			default:
			}
			if end != "kill" {
				if err := p.in.Close(); err != nil {
					t.Fatal(err)
				}
			}
			if end == "kill" || end == "child" {
				if err := p.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			awaitDied(t, word)
			if end == "exec" {
				if err := p.Process.Signal(syscall.Signal(0)); err != nil {
					t.Errorf("the process that runs another program: %v", err)
				}
			}
		})
	}
}

// A lock of a C library has no waiters until somebody waits; the wait for it works on one processor. A word that nobody holds, or that
// another process could unmap, is refused.
func TestWatchForeign(t *testing.T) {
	if !canWait() {
		t.Skip("the kernel cannot wait for several words")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	memory, err := NewMemory(pageSize)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	if word, err := WatchForeign(handle(t, memory.File())); err == nil {
		word.Close()
		t.Error("a word that nobody holds is watched")
	}
	open, err := os.Create(t.TempDir() + "/open")
	if err != nil {
		t.Fatal(err)
	}
	if word, err := WatchForeign(open); err == nil {
		word.Close()
		t.Error("a file that may shrink is watched")
	}
	p := startHolder(t, "kill")
	path := fmt.Sprintf("/proc/%d/fd/%s", p.Process.Pid, p.line(t))
	theirs, err := Open(writable(t, path))
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	value := &wordIn(theirs)[0].word
	value.Store(value.Load() &^ futexWaiters)
	word, err := WatchForeign(writable(t, path))
	if err != nil {
		t.Fatal(err)
	}
	defer word.Close()
	if err := p.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitDied(t, word)
}

// A program that has given its word back may end or run on: nothing is reported. Neither is anything after Close.
func TestProcessWordReleased(t *testing.T) {
	skipWithoutWait(t)
	var w WordWatch
	released, first := holdWord(t, &w, "release")
	other, second := holdWord(t, &w, "release")
	if err := released.in.Close(); err != nil {
		t.Fatal(err)
	}
	released.line(t)
	second.Close()
	for _, p := range []wordHolder{released, other} {
		if err := p.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = p.Wait()
	}
	await(t, "the end of the thread", func() bool { return w.count() == 0 })
	for i, word := range []*WatchedWord{first, second} {
		select {
		case <-word.Died():
			t.Errorf("word %d reports a death", i)
		default:
		}
	}
}

// count returns the number of threads.
func (w *WordWatch) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.threads)
}

// The end of the thread that holds a word counts as the end of the program.
func TestProcessWordOfAThread(t *testing.T) {
	skipWithoutWait(t)
	memory, err := NewMemory(pageSize)
	if err != nil {
		t.Fatal(err)
	}
	end, held := make(chan struct{}), make(chan error)
	own := &ProcessWord{memory: memory}
	var restore func()
	var hold func()
	hold = func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		// The Go runtime never ends the first thread of the process.
		if unix.Gettid() == os.Getpid() {
			go hold()
			<-end
			runtime.UnlockOSThread()
			return
		}
		var err error
		restore, err = own.list.install(wordIn(memory))
		wordIn(memory)[0].word.Store(uint32(unix.Gettid()) | futexWaiters)
		held <- err
		<-end
	}
	go hold()
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	var w WordWatch
	word, err := w.Watch(handle(t, memory.File()))
	if err != nil {
		t.Fatal(err)
	}
	close(end)
	awaitDied(t, word)
	// The list is not used any more. That of this thread has to stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	list, err := currentRobustList()
	if err != nil {
		t.Fatal(err)
	}
	restore()
	if err := setRobustList(list); err != nil {
		t.Error(err)
	}
}

// Any number of words can be watched, and be marked, given back or closed in any order. Values that neither a program nor the kernel
// writes report nothing.
func TestManyProcessWords(t *testing.T) {
	skipWithoutWait(t)
	const n = 3*wordsPerThread + 5
	var w WordWatch
	memories, words := make([]*Memory, n), make([]*WatchedWord, n)
	for i := range n {
		var err error
		if memories[i], err = newMemory(pageSize); err != nil {
			t.Fatal(err)
		}
		wordIn(memories[i])[0].word.Store(uint32(i+1) | futexWaiters)
		if words[i], err = w.Watch(handle(t, memories[i].File())); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.count(); got != 4 {
		t.Errorf("%d threads for %d words", got, n)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, i := range rng.Perm(n) {
		word := &wordIn(memories[i])[0].word
		switch i % 4 {
		case 0:
			word.Store(ownerDied)
		case 1:
			word.Store([]uint32{0, futexOwnerDied, ownerDied | 5, ^uint32(0)}[i/4%4])
		case 2:
			words[i].Close()
			continue
		case 3: // the last one keeps each thread alive until the others are done
			continue
		}
		wakeWord(word)
	}
	for i := 0; i < n; i += 4 {
		awaitDied(t, words[i])
	}
	for i := range n {
		words[i].Close()
	}
	await(t, "the ends of the threads", func() bool { return w.count() == 0 })
	for i := range n {
		select {
		case <-words[i].Died():
			if i%4 != 0 {
				t.Errorf("word %d reports a death", i)
			}
		default:
		}
		if err := memories[i].Close(); err != nil {
			t.Error(err)
		}
	}
}

// A file from another process is checked, and closed. A process with one thread for Go code watches nothing.
func TestWatchRefuses(t *testing.T) {
	skipWithoutWait(t)
	var w WordWatch
	small, err := newMemory(8)
	if err != nil {
		t.Fatal(err)
	}
	defer small.Close()
	fd, err := unix.MemfdCreate("loose", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	for want, f := range map[string]*os.File{"in 8 bytes": handle(t, small.File()), "could shrink": os.NewFile(uintptr(fd), "loose"), "seals": writable(t, os.DevNull)} {
		if _, err := w.Watch(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if f.Close() == nil {
			t.Errorf("%s: the file was left open", want)
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	word, err := HoldWord(0)
	if err != nil {
		t.Fatal(err)
	}
	defer word.Release()
	if _, err := w.Watch(word.File()); !errors.Is(err, ErrUnsupported) {
		t.Errorf("on one thread: %v", err)
	}
}
