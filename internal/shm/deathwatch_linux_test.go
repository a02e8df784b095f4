package shm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// playDeathWatch runs the death watch of a rank in memory that the process has inherited. It prints each rank that has died,
// until standard input ends. Then it ends the death watch and prints "closed".
func playDeathWatch(spec string) error {
	var n, rank int
	if _, err := fmt.Sscan(spec, &n, &rank); err != nil {
		return err
	}
	memory, err := Open(os.NewFile(3, "segment"))
	if err != nil {
		return err
	}
	segment, err := attach(memory.Bytes(), nil, n, rank)
	if err != nil {
		return err
	}
	v := segment.WatchDeaths(func(rank int) { fmt.Println("died", rank) })
	_, err = io.Copy(io.Discard, os.Stdin)
	v.Close()
	fmt.Println("closed")
	return errors.Join(err, memory.Close())
}

// watcher is a process that runs the death watch of a rank.
type watcher struct {
	cmd   *exec.Cmd
	in    io.Closer
	lines chan string // lines that the process prints
}

// watchers starts n watchers, one after the other, and returns the memory that they share.
func watchers(t *testing.T, n int) ([]*watcher, *Segment) {
	t.Helper()
	s := watchSegment(t, n, 0)
	var all []*watcher
	for rank := range n {
		w := startWatcher(t, n, rank, s.file)
		all = append(all, w)
		t.Cleanup(w.stop)
		awaitSigned(t, s.Segment, rank)
	}
	return all, s.Segment
}

// fileSegment is a segment with its file.
type fileSegment struct {
	*Segment
	file *os.File
}

// watchSegment creates memory for n ranks, and returns the segment of one of them.
func watchSegment(t *testing.T, n, rank int) fileSegment {
	t.Helper()
	if _, _, failed := unix.Syscall(unix.SYS_FUTEX_WAITV, 0, 0, 0); failed != unix.EINVAL {
		t.Skipf("the kernel cannot wait for several words: %v", failed)
	}
	memory, err := NewMemory(Size(n))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := memory.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := attach(memory.Bytes(), nil, n, rank)
	if err != nil {
		t.Fatal(err)
	}
	return fileSegment{s, memory.File()}
}

func startWatcher(t *testing.T, n, rank int, memory *os.File) *watcher {
	t.Helper()
	w := &watcher{cmd: exec.Command(os.Args[0]), lines: make(chan string, 100)}
	w.cmd.Env = append(os.Environ(), fmt.Sprintf("SHM_DEATHWATCH=%d %d", n, rank), "GORACE=atexit_sleep_ms=0")
	w.cmd.ExtraFiles = []*os.File{memory}
	w.cmd.Stderr = os.Stderr
	in, err1 := w.cmd.StdinPipe()
	out, err2 := w.cmd.StdoutPipe()
	if err := errors.Join(err1, err2, w.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	w.in = in
	go func() {
		defer close(w.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			w.lines <- s.Text()
		}
	}()
	return w
}

// stop kills the process, whether it still runs or not.
func (w *watcher) stop() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}

// prints waits for the next line of the process, which must be want.
func (w *watcher) prints(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-w.lines:
		if got != want {
			t.Errorf("printed %q, want %q", got, want)
		}
	case <-time.After(hang):
		t.Fatalf("does not print %q", want)
	}
}

// leave ends the process in good order.
func (w *watcher) leave(t *testing.T) {
	t.Helper()
	if err := w.in.Close(); err != nil {
		t.Fatal(err)
	}
	w.prints(t, "closed")
	if err := w.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// await waits until the function there returns true, by the work of another process or goroutine.
func await(t *testing.T, what string, there func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); !there(); <-tick.C {
		if time.Since(begun) > hang {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// awaitSigned waits until the other ranks can watch a rank. It returns the rank's thread.
func awaitSigned(t *testing.T, s *Segment, rank int) (thread int) {
	t.Helper()
	last := &s.robustWords(rank)[s.size-1].word
	await(t, fmt.Sprintf("rank %d", rank), func() bool { return last.Load() != 0 })
	return int(last.Load() &^ (futexWaiters | futexOwnerDied))
}

// listOf returns the address of a thread's robust list.
func listOf(t *testing.T, thread int) (head uintptr) {
	t.Helper()
	var size uintptr
	_, _, failed := unix.Syscall(unix.SYS_GET_ROBUST_LIST, uintptr(thread),
		uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&size)))
	if failed != 0 {
		t.Fatal(failed)
	}
	return head
}

// When a process dies, every other rank is notified which rank has died, whether the other rank
// started before or after the dead rank. A process that is stopped or has left does not count as
// dead.
func TestDeathWatch(t *testing.T) {
	const n = 4
	for killed := range n {
		t.Run(fmt.Sprint(killed), func(t *testing.T) {
			all, _ := watchers(t, n)
			stopped, left := all[(killed+1)%n], all[(killed+2)%n]
			if err := stopped.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			var status unix.WaitStatus
			if _, err := unix.Wait4(stopped.cmd.Process.Pid, &status, unix.WUNTRACED, nil); err != nil || !status.Stopped() {
				t.Fatalf("status %x, %v", status, err)
			}
			left.leave(t)
			if err := all[killed].cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			last := all[(killed+3)%n]
			last.prints(t, fmt.Sprint("died ", killed))
			if err := stopped.cmd.Process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			stopped.prints(t, fmt.Sprint("died ", killed))
			stopped.leave(t)
			last.leave(t)
		})
	}
}

// A rank that starts after another rank has died is also notified of the death.
func TestDeathWatchOfTheDead(t *testing.T) {
	s := watchSegment(t, 2, 0)
	w := startWatcher(t, 2, 1, s.file)
	awaitSigned(t, s.Segment, 1)
	w.stop()
	died := make(chan int, 2)
	v := s.WatchDeaths(func(rank int) { died <- rank })
	defer v.Close()
	if rank := <-died; rank != 1 {
		t.Errorf("rank %d died, want 1", rank)
	}
}

// A word that the kernel cannot have written reports no death.
func TestDeathWatchOfAWrongWord(t *testing.T) {
	s := watchSegment(t, 3, 0)
	s.robustWords(1)[0].word.Store(ownerDied | 7)
	s.robustWords(2)[0].word.Store(ownerDied)
	died := make(chan int, 3)
	v := s.WatchDeaths(func(rank int) { died <- rank })
	defer v.Close()
	if rank := <-died; rank != 2 {
		t.Errorf("rank %d died, want 2", rank)
	}
}

// When a death watch ends, it restores the thread's robust list, and its words report no death. Revoke ends it as Close does,
// also when the callback calls Revoke. After that the death watch does not access the memory.
func TestDeathWatchEnds(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for name, end := range map[string]func(*Segment, *DeathWatch){
		"close":  func(_ *Segment, v *DeathWatch) { v.Close() },
		"revoke": func(s *Segment, _ *DeathWatch) { s.Revoke() },
	} {
		t.Run(name, func(t *testing.T) {
			s := watchSegment(t, 3, 1)
			v := s.WatchDeaths(func(int) { t.Error("reported a death") })
			will := uintptr(unsafe.Pointer(&v.list))
			thread := awaitSigned(t, s.Segment, 1)
			if got := listOf(t, thread); got != will {
				t.Errorf("the thread's list is at %x, want %x", got, will)
			}
			end(s.Segment, v)
			for r := range s.robustWords(1) {
				if got := s.robustWords(1)[r].word.Load(); got != 0 {
					t.Errorf("the word for rank %d is %x", r, got)
				}
			}
			v.Close()
			if got := listOf(t, thread); got == will {
				t.Error("the thread has kept the list")
			}
			s.memory = nil // as if the memory were unmapped
			s.Revoke()
			v.Close()
		})
	}
	s := watchSegment(t, 2, 0)
	s.robustWords(1)[0].word.Store(ownerDied)
	done := make(chan struct{})
	v := s.WatchDeaths(func(int) {
		s.Revoke()
		close(done)
	})
	<-done
	v.Close()
}

// Another process may write anything into the words. A death watch still reports each rank at most once, and ends when it is
// closed. A process whose words are damaged can still die.
func TestDeathWatchAmongGarbage(t *testing.T) {
	const n = 3
	all, shared := watchers(t, n)
	s := watchSegment(t, n, 0)
	told := make(chan int, 100)
	v := s.WatchDeaths(func(rank int) { told <- rank })
	rng := rand.New(rand.NewPCG(1, 2))
	values := []uint32{0, ownerDied, futexOwnerDied, futexWaiters, ^uint32(0), uint32(os.Getpid()), 7 | futexWaiters}
	for range 20_000 {
		for _, s := range []*Segment{s.Segment, shared} {
			word := &s.robustWords(rng.IntN(n))[rng.IntN(n)].word
			word.Store(values[rng.IntN(len(values))])
			wakeWord(word)
		}
	}
	v.Close()
	close(told)
	count := make(map[int]int)
	for rank := range told {
		if count[rank]++; count[rank] > 1 || rank == 0 || rank >= n {
			t.Errorf("reported the death of rank %[2]d %[1]d times", count[rank], rank)
		}
	}
	for _, w := range all {
		w.stop()
		if !w.cmd.ProcessState.Exited() && w.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
			t.Errorf("ended by %v", w.cmd.ProcessState)
		}
	}
}
