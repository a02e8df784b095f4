// Planted checks that the tests find bugs (mutation testing). testdata has a list of planted bugs for each package. A planted bug
// is a small harmful change of the source, with the test that must find it. Planted applies one bug at a time to a copy of the
// source and runs its test, which must then fail.
//
//	go run ./scripts/planted [-run REGEXP]     from the module's root
//
// Bugs of the Python package need a python3 with PyTorch and pytest, which $PYTHON may name. The exit status is 1 if a test did not find its bug, or if an entry does not fit the source.
// Entries that do not fit are reported at the end.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// limit is the time limit of one test. A hang counts as found.
const limit = 90 * time.Second

func main() {
	pattern := flag.String("run", "", "only bugs whose name or file matches this regular expression")
	flag.Parse()
	if err := run(*pattern); err != nil {
		fmt.Fprintln(os.Stderr, "planted:", err)
		os.Exit(1)
	}
}

// run tries the bugs whose name or file matches pattern, and prints how many were found.
func run(pattern string) (err error) {
	wanted, err := regexp.Compile(pattern)
	if err != nil {
		return err
	}
	bugs, err := readLists(".")
	if err != nil {
		return err
	}
	root, err := os.MkdirTemp("", "elrun-planted-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(root)) }()
	if err := copySource(root); err != nil {
		return err
	}
	found, tried, misfits := 0, 0, error(nil)
	for _, b := range bugs {
		if !wanted.MatchString(b.name) && !wanted.MatchString(b.file) {
			continue
		}
		tried++
		ok, err := b.try(root)
		misfits = errors.Join(misfits, err)
		if ok {
			found++
		}
	}
	fmt.Printf("%d of %d found\n", found, tried)
	if found < tried {
		return errors.Join(fmt.Errorf("%d not found", tried-found), misfits)
	}
	return misfits
}

// copySource copies the files that the go command needs from the current directory to root.
func copySource(root string) error {
	return filepath.WalkDir(".", func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == ".git" || path == "bin" || filepath.Base(path) == "mnist" && filepath.Dir(path) == "data"):
			return filepath.SkipDir
		case d.IsDir():
			return os.MkdirAll(filepath.Join(root, path), 0o777)
		case !d.Type().IsRegular():
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(root, path), b, 0o666)
	})
}

// try checks that the bug's test passes in the copy. Then it applies the bug to the copy, runs the
// test, and restores the copy.
func (b bug) try(root string) (found bool, err error) {
	file := filepath.Join(root, filepath.FromSlash(b.file))
	source, err := os.ReadFile(file)
	if err != nil {
		return false, err
	}
	planted, err := b.apply(string(source))
	if err != nil {
		return false, err
	}
	if out, err := b.run(root); err != nil {
		return false, fmt.Errorf("%s fails without %q: %w\n%s", b.test, b.name, err, out)
	}
	if err := os.WriteFile(file, []byte(planted), 0o666); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.WriteFile(file, source, 0o666)) }()
	begun := time.Now()
	out, failed := b.run(root)
	if strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]") {
		return false, fmt.Errorf("%q does not compile:\n%s", b.name, out)
	}
	word := "found"
	if failed == nil {
		word = "NOT FOUND"
	}
	fmt.Printf("%-10s %5.1fs  %s: %s (%s)\n", word, time.Since(begun).Seconds(), b.file, b.name, b.test)
	return failed != nil, nil
}

// run runs the bug's test in the copy and returns its output.
func (b bug) run(root string) (string, error) {
	if path.Ext(b.pkg) == ".py" {
		return b.runPython(root)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit+5*time.Minute) // 5 more minutes for the compilation
	defer cancel()
	// Without -count go test would return the result of the run before if the bug is in code that only
	// the elrun that the test builds has, and not the test itself.
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-vet=off", "-timeout", limit.String(), "-run", "^"+b.test+"$", b.pkg)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err == nil && strings.Contains(string(out), "no tests to run") {
		err = fmt.Errorf("there is no %s in %s", b.test, b.pkg)
	}
	return string(out), err
}

// runPython runs the bug's test with pytest, and elrun of the copy.
func (b bug) runPython(root string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit+2*time.Minute) // 2 more minutes for the import of PyTorch and a build
	defer cancel()
	elrun := filepath.Join(root, "bin", "elrun")
	if _, err := os.Stat(elrun); err != nil { // no bug of Python changes it
		build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", elrun, "./cmd/elrun")
		build.Dir = root
		if out, err := build.CombinedOutput(); err != nil {
			return string(out), err
		}
	}
	cmd := exec.CommandContext(ctx, cmp.Or(os.Getenv("PYTHON"), "python3"), "-m", "pytest", "-q", "-x", b.pkg+"::"+b.test)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "ELRUN="+elrun, "PYTHONPATH="+filepath.Join(root, "python"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}
