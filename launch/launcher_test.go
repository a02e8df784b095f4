package launch

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// leave opens a socket and leaves its file behind, as a killed process does.
func leave(t *testing.T, at socketName) {
	t.Helper()
	l, err := listenControl(at)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// Of many launchers that find the file of a dead one at once, exactly one gets the name, and nobody
// removes its socket, also not those that list the sockets.
func TestOneLauncherTakesOver(t *testing.T) {
	dir := runtimeDir(t)
	at := socketName{testJob(t), launcherIndex, 0}
	path := filepath.Join(dir, at.file())
	for range 300 {
		leave(t, at)
		listeners, errs := make([]net.Listener, 8), make([]error, 8)
		var work sync.WaitGroup
		begin := make(chan struct{})
		for i := range listeners {
			work.Go(func() {
				<-begin
				removeDead(dir, path)
				listeners[i], errs[i] = listenControl(at)
			})
		}
		close(begin)
		work.Wait()
		got := 0
		for _, err := range errs {
			switch {
			case err == nil:
				got++
			case !errors.Is(err, syscall.EADDRINUSE):
				t.Fatal(err)
			}
		}
		if refuses, _ := isDeadSocket(path); got != 1 || refuses {
			t.Fatalf("%d launchers got the name; the socket refuses: %v", got, refuses)
		}
		for _, l := range listeners {
			if l != nil {
				_ = l.Close()
			}
		}
	}
}

// A killed launcher is in no list, and its file goes when the name is taken again.
func TestSocketOfAKilledLauncher(t *testing.T) {
	dir := runtimeDir(t)
	at := socketName{testJob(t), launcherIndex, 0}
	leave(t, at)
	if _, err := Find(t.Context(), at.job); !errors.Is(err, ErrNoJob) {
		t.Errorf("got %v", err)
	}
	l, err := listenControl(at)
	if err != nil {
		t.Fatal(err)
	}
	if j, err := Find(t.Context(), at.job); err != nil || j.Name() != at.job {
		t.Errorf("got %v, %v", j, err)
	}
	_ = l.Close()
	if _, err := os.Lstat(filepath.Join(dir, at.file())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}
}

// A job without peers that have called Init is found, and the errors of requests to its peers say so.
func TestJobWithoutPeers(t *testing.T) {
	at := socketName{testJob(t), launcherIndex, 0}
	l, err := listenControl(at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = findJob(t, at.job).Status(t.Context())
	if !errors.Is(err, ErrNoJob) || !strings.Contains(err.Error(), "has called Init yet") {
		t.Errorf("got %v", err)
	}
}

// Run starts nothing if another launcher has the name, even if that one has no peers yet.
func TestRunOfATakenName(t *testing.T) {
	at := socketName{testJob(t), launcherIndex, 0}
	l, err := listenControl(at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := Options{Program: "false", Peers: 1, Job: at.job}
	if _, err := Run(t.Context(), o); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "is running already") {
		t.Errorf("got %v", err)
	}
	r := &runner{o: &o, calls: newCalls()} // both launchers have seen that the name is free
	if _, err := serveLauncher(r); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "is running already") {
		t.Errorf("got %v", err)
	}
	// A launcher that joins a job has a socket of its own.
	r.o.Join = true
	end, err := serveLauncher(r)
	if err != nil {
		t.Fatal(err)
	}
	all, err := listSockets()
	if want := (socketName{at.job, launcherIndex, os.Getpid()}); err != nil || !slices.Contains(all, want) || !slices.Contains(all, at) {
		t.Errorf("got %v, %v", all, err)
	}
	end()
}

// A launcher answers only elrun stop. After the end of its loop, and before, requests do not hang.
func TestLauncherServices(t *testing.T) {
	r := &runner{o: &Options{Job: testJob(t)}, calls: newCalls()}
	s := launcherServices{r}
	for _, line := range []string{"{", `{"request":"status"}`} {
		if got := s.answer(t.Context(), []byte(line)); got.Error == "" {
			t.Errorf("%s: %+v", line, got)
		}
	}
	hasty, cancel := context.WithCancel(t.Context())
	cancel()
	if got := s.answer(hasty, []byte(`{"request":"stop"}`)); got.Error == "" || got.Stopping {
		t.Errorf("before the loop: %+v", got)
	}
	close(r.calls.over)
	if got := s.answer(t.Context(), []byte(`{"request":"stop"}`)); got.Error == "" || got.Stopping {
		t.Errorf("after the loop: %+v", got)
	}
	s.end()
}

// A peer that elrun stop asks after it has reported the result has finished: it is to blame if it
// cannot keep the result.
func TestStopAfterTheResult(t *testing.T) {
	ready := newExpecting("ready")
	job := testJob(t)
	var work sync.WaitGroup
	work.Go(func() {
		<-ready.seen
		if s, err := (&Job{name: job}).Stop(t.Context()); err != nil || s.Peers != 1 {
			t.Errorf("got %+v, %v", s, err)
		}
	})
	res, _, err := runShell(t, sayHello+`trap 'exit 1' TERM; `+sayDone+`abcd >&3; echo ready; while :; do sleep 0.01; done`,
		Options{Peers: 1, Job: job, Output: Output{Stdout: ready}})
	work.Wait()
	if res.Status != 1 || !strings.Contains(err, "it had a result, but then peer 0") {
		t.Errorf("status %d, %s", res.Status, err)
	}
}
