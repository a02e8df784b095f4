package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// job is the name of the recorded job.
const job = "m"

// settings are the program and its arguments, the same for all peers.
const settings = "bin/mnist --passes 3 --pace 500us --exact"

// A peer is killed after step killAfter, and another peer joins after step joinAfter.
const (
	killAfter = 60
	joinAfter = 140
)

// terminal collects the lines of all commands with their times.
type terminal struct {
	mu    sync.Mutex
	began time.Time
	lines []line
}

// show adds a line.
func (t *terminal) show(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines = append(t.lines, line{time.Since(t.began), text})
}

// follow adds the lines of a command's output until its end.
func (t *terminal) follow(output io.Reader) error {
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		t.show(lines.Text())
	}
	return lines.Err()
}

// record runs the job with the programs in a folder and returns the lines of its terminal.
func record(ctx context.Context, folder string) ([]line, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	t := &terminal{began: time.Now()}
	elrun := filepath.Join(folder, "elrun")
	t.show("$ elrun -n 4 --name " + job + " " + settings)
	first, err := start(ctx, t, elrun, append([]string{"-n", "4", "--name", job}, strings.Fields(settings)...)...)
	if err != nil {
		return nil, err
	}
	disturbed := disturb(ctx, t, elrun)
	if disturbed != nil {
		cancel() // ends the job
	}
	if err := first(); err != nil && disturbed == nil {
		return nil, err
	}
	return t.lines, disturbed
}

// start starts a command, whose output goes to the terminal. wait waits for the end of the command.
func start(ctx context.Context, t *terminal, name string, args ...string) (wait func() error, err error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Start()
	w.Close()
	if err != nil {
		r.Close()
		return nil, err
	}
	followed := make(chan error, 1)
	go func() {
		defer r.Close()
		followed <- t.follow(r)
	}()
	return func() error { return errors.Join(<-followed, cmd.Wait()) }, nil
}

// disturb kills a peer of the job, and later lets another peer join with a ticket. It returns when
// this peer has ended.
func disturb(ctx context.Context, t *terminal, elrun string) error {
	s, err := reach(ctx, elrun, killAfter)
	if err != nil {
		return err
	}
	victim := s.Members[1].PID
	t.show(fmt.Sprintf("$ kill -9 %d", victim))
	if err := syscall.Kill(victim, syscall.SIGKILL); err != nil {
		return err
	}
	if _, err := reach(ctx, elrun, joinAfter); err != nil {
		return err
	}
	t.show("$ elrun ticket " + job)
	out, err := exec.CommandContext(ctx, elrun, "ticket", job).Output()
	if err != nil {
		return fmt.Errorf("elrun ticket: %w", err)
	}
	ticket := strings.TrimSpace(string(out))
	short := ticket[:min(len(ticket), 14)] + "..."
	t.show(short)
	t.show("$ elrun join " + short + " -n 1 " + settings)
	return join(ctx, elrun, ticket)
}

// join runs elrun join with one peer until it ends. Its output is not recorded.
func join(ctx context.Context, elrun, ticket string) error {
	cmd := exec.CommandContext(ctx, elrun, append([]string{"join", ticket, "-n", "1"}, strings.Fields(settings)...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		return err
	}
	return cmd.Wait()
}

// status has the fields of elrun status --json that this program uses.
type status struct {
	Step    int64 `json:"step"`
	Members []struct {
		PID int `json:"pid"`
	} `json:"members"`
}

// reach waits until the job has reached a step, and returns its status.
func reach(ctx context.Context, elrun string, step int64) (s status, err error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		out, err := exec.CommandContext(ctx, elrun, "status", job, "--json").Output()
		if err == nil {
			err = json.Unmarshal(out, &s)
		}
		if err == nil && s.Step >= step && len(s.Members) > 2 {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return s, fmt.Errorf("the job has not reached step %d: %w", step, ctx.Err())
		case <-tick.C:
		}
	}
}
