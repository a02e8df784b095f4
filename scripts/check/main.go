// Check runs, within a minute, the checks that a change is most likely to break. It checks the
// rules of internal/lint for all files, and whether all packages and tests compile. For the changed
// packages it also runs vet, staticcheck without tests, and the tests. A package is changed if one
// of its files differs from the commit at which the branch left -base, committed or not.
//
//	go run ./scripts/check [-base COMMIT] [-skip REGEXP] [-thin REGEXP]     from the module's root
//
// Packages whose path matches -skip are listed but not tested, because their tests start processes
// and take minutes. Tests that match -thin, which has the form of the flag -skip of go test, run
// only in make test-long. The exit status is 1 if a check fails.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"
)

func main() {
	base := flag.String("base", "", "compare with this commit or branch (default: origin/main, or main if there is none)")
	skip := flag.String("skip", "^$", "do not run the tests of packages whose import path matches")
	thin := flag.String("thin", "", "do not run the tests that match, written as for the flag -skip of go test")
	flag.Parse()
	if err := run(*base, *skip, *thin); err != nil {
		fmt.Fprintln(os.Stderr, "check:", err)
		os.Exit(1)
	}
}

// run finds the changed packages and runs the checks, all of them even if one fails.
func run(base, skip, thin string) error {
	begun := time.Now()
	costly, err := regexp.Compile(skip)
	if err != nil {
		return fmt.Errorf("flag -skip: %w", err)
	}
	files, err := changedFiles(base)
	if err != nil {
		return err
	}
	all, err := packages()
	if err != nil {
		return err
	}
	p := planOf(all, files, costly)
	fmt.Println(p)
	failed := checkTypes(all)
	for _, command := range p.commands(thin) {
		failed = errors.Join(failed, stream(command))
	}
	if failed == nil {
		fmt.Printf("check: all is well after %.0f s\n", time.Since(begun).Seconds())
	}
	return failed
}

// stream runs a command, whose output goes to the output of this process.
func stream(command []string) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return nil
}

// output runs a command and returns its output.
func output(command ...string) (string, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(command, " "), err)
	}
	return string(out), nil
}
