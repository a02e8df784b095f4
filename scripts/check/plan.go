package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// listed is a package in the output of go list.
type listed struct {
	ImportPath, Dir                    string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Imports, TestImports, XTestImports []string
	Deps                               []string // all packages that the package depends on, without its tests
	Module                             struct{ Dir string }
}

// packages lists the packages of the module in the current directory.
func packages() ([]listed, error) {
	text, err := output("go", "list", "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports,Deps,Module", "./...")
	if err != nil {
		return nil, err
	}
	var all []listed
	for d := json.NewDecoder(strings.NewReader(text)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if p.Dir, err = filepath.Rel(p.Module.Dir, p.Dir); err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		p.Dir = filepath.ToSlash(p.Dir)
		all = append(all, p)
	}
}

// changedFiles returns the files that differ from the commit at which HEAD left base, and new
// files. If base is empty, origin/main is the base, or main if there is no origin/main.
func changedFiles(base string) ([]string, error) {
	if base == "" {
		base = "origin/main"
		if _, err := output("git", "rev-parse", "--quiet", "--verify", base); err != nil {
			base = "main"
		}
	}
	left, err := output("git", "merge-base", "HEAD", base)
	if err != nil {
		return nil, err
	}
	changed, err := output("git", "diff", "--name-only", "--no-renames", strings.TrimSpace(left))
	if err != nil {
		return nil, err
	}
	unknown, err := output("git", "ls-files", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	return strings.Fields(changed + unknown), nil
}

// plan lists the packages to check, by import path, without repetition.
type plan struct {
	changed []string // packages with changed files
	tested  []string // changed packages whose tests run
	left    []string // changed packages whose tests are skipped
}

// planOf returns the plan for changed files. A file belongs to the package in its folder. If this
// folder has no package, like testdata, the file belongs to the package in the nearest folder
// above.
func planOf(all []listed, files []string, costly *regexp.Regexp) plan {
	at := make(map[string]string, len(all))
	for _, p := range all {
		at[p.Dir] = p.ImportPath
	}
	changed := make(map[string]bool)
	for _, f := range files {
		for dir := path.Dir(f); ; dir = path.Dir(dir) {
			if importPath, is := at[dir]; is {
				changed[importPath] = true
			}
			if at[dir] != "" || dir == "." {
				break
			}
		}
	}
	var p plan
	for _, l := range all {
		switch {
		case changed[l.ImportPath] && costly.MatchString(l.ImportPath):
			p.left = append(p.left, l.ImportPath)
		case changed[l.ImportPath]:
			p.tested = append(p.tested, l.ImportPath)
		}
	}
	p.changed = slices.Concat(p.tested, p.left)
	return p
}

// String returns a description of the plan.
func (p plan) String() string {
	s := fmt.Sprintf("check: %d packages changed", len(p.changed))
	if len(p.left) > 0 {
		s += "; their tests take minutes and do not run here (make test): " + strings.Join(p.left, " ")
	}
	return s
}

// commands returns the commands that carry out the plan without the tests that match thin. The
// commands always check that the planted bugs fit the source.
func (p plan) commands(thin string) [][]string {
	const lint, planted = "github.com/elrun/elrun/internal/lint", "github.com/elrun/elrun/scripts/planted"
	all := [][]string{{"go", "test", "-count=1", lint, "-packages=" + strings.Join(p.changed, " ")}}
	tested := append(slices.Clone(p.tested), planted)
	tested = slices.DeleteFunc(tested, func(p string) bool { return p == lint }) // the first command runs this test
	slices.Sort(tested)
	// -vet=off, because the test of lint also vets these packages.
	return append(all, append([]string{"scripts/gotest.sh", "-vet=off", "-skip=" + thin}, slices.Compact(tested)...))
}
