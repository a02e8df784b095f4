// Command gotest runs "go test -json" with its arguments and prints a readable report: the
// closing line of each package as it ends, the complete output of failed tests only, and a
// summary that lists each skipped test with its reason, which plain "go test" hides.
//
//	go run ./scripts/gotest ./...
//	go run ./scripts/gotest ./... -C scripts/figures ./...
//
// Each -C begins the arguments of a further run of the go command, in that folder, for a nested
// module. One summary covers all runs.
//
// With ELRUN_CI set a skipped test counts as a failure: CI has everything that tests need, and a
// test that never runs proves nothing. The exit status is 0 on success and 1 otherwise.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
)

func main() {
	s := newSummary(os.Stdout)
	var err error
	for _, args := range parts(os.Args[1:]) {
		err = errors.Join(err, run(s, args))
	}
	ok := s.close(os.Getenv("ELRUN_CI") != "")
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// parts splits the arguments before each -C. Without arguments there is one empty part.
func parts(args []string) [][]string {
	all := [][]string{nil}
	for i, arg := range args {
		if arg == "-C" && i > 0 {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], arg)
	}
	return all
}

// command returns a run of the go command, which accepts -C only as its first flag.
func command(args []string) *exec.Cmd {
	where := 0
	if len(args) > 1 && args[0] == "-C" {
		where = 2
	}
	return exec.Command("go", slices.Concat([]string{"test"}, args[:where], []string{"-json"}, args[where:])...)
}

// run runs the go command and passes its events to s. A failure of the command is an error even
// if no test has failed, as when a package does not compile.
func run(s *summary, args []string) error {
	cmd := command(args)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("pipe of go test: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start go test: %w", err)
	}
	readErr := read(s, out)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	return readErr
}

// read passes an event per line of r to s. Other lines are printed: the go command reports some
// problems as plain text.
func read(s *summary, r io.Reader) error {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		var e event
		if len(line) > 0 && json.Unmarshal(line, &e) == nil {
			s.add(e)
		} else {
			s.print(string(line))
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
	}
}
