// Command notices writes the licences that a distribution of a program must contain: the licences
// of Go and of each module that is linked into the program.
//
//	go run ./scripts/notices PROGRAM >OUT
//
// The modules come from the program's build information, their licence files from the module
// cache. A module without a licence file is an error.
package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

// run writes the notices of one program to to.
func run(args []string, to io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: notices PROGRAM")
	}
	info, err := buildinfo.ReadFile(args[0])
	if err != nil {
		return err
	}
	root, err := command("env", "GOROOT")
	if err != nil {
		return err
	}
	all, err := folders(info.Deps)
	if err != nil {
		return err
	}
	all = append([]folder{{"Go " + info.GoVersion, strings.TrimSpace(string(root))}}, all...)
	// The output is buffered, so that after an error there is no partial output.
	var out bytes.Buffer
	for _, f := range all {
		if err := f.write(&out); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	_, err = to.Write(out.Bytes())
	return err
}

// folder is the folder of a module's files.
type folder struct{ name, path string }

// folders returns the folders of modules, in the order of their paths.
func folders(deps []*debug.Module) ([]folder, error) {
	args := []string{"mod", "download", "-json"}
	for _, m := range deps {
		if m.Replace != nil {
			m = m.Replace
		}
		args = append(args, m.Path+"@"+m.Version)
	}
	if len(deps) == 0 {
		return nil, nil
	}
	text, err := command(args...)
	if err != nil {
		return nil, err
	}
	var out []folder
	for d := json.NewDecoder(bytes.NewReader(text)); d.More(); {
		var m struct{ Path, Version, Dir string }
		if err := d.Decode(&m); err != nil {
			return nil, fmt.Errorf("decode the list of modules: %w", err)
		}
		out = append(out, folder{m.Path + " " + m.Version, m.Dir})
	}
	return out, nil
}

// write writes the licences and notices of a module, below its name.
func (f folder) write(to *bytes.Buffer) error {
	files, err := os.ReadDir(f.path) // sorted by name
	if err != nil {
		return err
	}
	legal := regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-.].*)?$`)
	fmt.Fprintf(to, "%s\n%s\n\n", f.name, strings.Repeat("=", len(f.name)))
	found := false
	for _, e := range files {
		if !e.Type().IsRegular() || !legal.MatchString(e.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(f.path, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(to, "%s\n\n", bytes.TrimSpace(text))
	}
	if !found {
		return errors.New("no licence in " + f.path)
	}
	return nil
}

// command runs the go command and returns its standard output.
func command(args ...string) ([]byte, error) {
	cmd := exec.Command(cmp.Or(os.Getenv("GO"), "go"), args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", args[0], err)
	}
	return out, nil
}
