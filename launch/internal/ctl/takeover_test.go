package ctl

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// leave opens a socket and leaves its file behind, as a killed process does.
func leave(t *testing.T, at SocketName) {
	t.Helper()
	l, err := Listen(at)
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
	at := SocketName{testJob(t), LauncherIndex, 0}
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
				listeners[i], errs[i] = Listen(at)
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
	at := SocketName{Job: testJob(t), Index: LauncherIndex, PID: 0}
	leave(t, at)
	if _, err := Find(t.Context(), at.Job); !errors.Is(err, ErrNoJob) {
		t.Errorf("got %v", err)
	}
	l, err := Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	if j, err := Find(t.Context(), at.Job); err != nil || j.Name() != at.Job {
		t.Errorf("got %v, %v", j, err)
	}
	_ = l.Close()
	if _, err := os.Lstat(filepath.Join(dir, at.file())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}
}

// A job without peers that have called Init is found, and the errors of requests to its peers say so.
func TestJobWithoutPeers(t *testing.T) {
	at := SocketName{Job: testJob(t), Index: LauncherIndex, PID: 0}
	l, err := Listen(at)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = findJob(t, at.Job).Status(t.Context())
	if !errors.Is(err, ErrNoJob) || !strings.Contains(err.Error(), "has called Init yet") {
		t.Errorf("got %v", err)
	}
}
