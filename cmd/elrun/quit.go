package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/launch"
)

const (
	// quitPatience bounds the time for which a record delays the end at SIGQUIT.
	quitPatience = 8 * time.Second
	// shownQuit bounds the line about the record, in bytes.
	shownQuit = 190
)

// quitter records the calls of a job at SIGQUIT (Ctrl-\), and then lets the signal do what it does without a handler: this process
// prints its goroutines and ends with status 2, and the job with it. It needs nothing of the launcher's
// loop. A second SIGQUIT ends this process at once.
type quitter struct {
	job, dir string // the job of a launcher and its folder of records; dir may be empty
	stderr   *os.File
}

// wait waits for SIGQUIT until end is called. A signal that was ignored at the start stays ignored.
func (q quitter) wait() (end func()) {
	if signal.Ignored(syscall.SIGQUIT) {
		return func() {}
	}
	quit, over := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(quit, syscall.SIGQUIT)
	var work sync.WaitGroup
	work.Go(func() {
		select {
		case <-quit:
			signal.Reset(syscall.SIGQUIT)
			fmt.Fprintln(q.stderr, q.record())
			_ = syscall.Kill(os.Getpid(), syscall.SIGQUIT)
		case <-over:
		}
	})
	return func() {
		signal.Stop(quit)
		close(over)
		work.Wait()
	}
}

// record takes the record, and returns the line about it. Without a folder of records it makes one for temporary files.
func (q quitter) record() string {
	ctx, cancel := context.WithTimeout(context.Background(), quitPatience)
	defer cancel()
	job, err := launch.Find(ctx, q.job)
	dir := q.dir
	if err == nil && dir == "" { // somebody asks for this record
		dir, err = os.MkdirTemp("", "elrun-"+job.Name()+"-")
	}
	line := ""
	if err == nil {
		dir = filepath.Join(dir, time.Now().Format("20060102-150405.000-quit"))
		var found flight.Finding
		found, err = job.Record(ctx, dir, "quit")
		line = fmt.Sprintf("elrun: SIGQUIT: the last calls are in %s: %s", dir, found.Text)
	}
	if err != nil {
		line = fmt.Sprintf("elrun: SIGQUIT: no record: %v", err)
	}
	if len(line) > shownQuit {
		line = strings.ToValidUTF8(line[:shownQuit-3], "") + "..."
	}
	return line
}
