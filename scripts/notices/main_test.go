package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The notices of a program have the licence of Go, once, and the licences of its modules.
func TestRun(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run([]string{self}, &out); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "Go "+runtime.Version()+"\n=") || !strings.Contains(out.String(), "The Go Authors") {
		t.Errorf("it begins with %.100q", out.String())
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("\ntext of "+name+"\n\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	m := folder{"example.com/m v1.2.3", dir}
	write("README.md")
	write("licenser.go")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "LICENSES"), 0o700), m.write(&out)); err == nil || !strings.Contains(err.Error(), "no licence") {
		t.Errorf("without a licence: %v", err)
	}
	write("LICENSE")
	write("NOTICE.txt")
	out.Reset()
	want := "example.com/m v1.2.3\n====================\n\ntext of LICENSE\n\ntext of NOTICE.txt\n\n"
	if err := m.write(&out); err != nil || out.String() != want {
		t.Errorf("%q, %v, want %q", out.String(), err, want)
	}
}

func TestMistakes(t *testing.T) {
	for _, args := range [][]string{nil, {"a", "b"}, {filepath.Join(t.TempDir(), "missing")}} {
		var out bytes.Buffer
		if err := run(args, &out); err == nil || out.Len() > 0 {
			t.Errorf("%v: no error, or output %q", args, out.String())
		}
	}
}
