package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// folder creates files with the given modes and times, whose content is their name.
func folder(t *testing.T, at time.Time, files map[string]os.FileMode) (names []string) {
	t.Helper()
	dir := t.TempDir()
	for name, mode := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(name), mode), os.Chmod(path, mode), os.Chtimes(path, at, at)); err != nil {
			t.Fatal(err)
		}
		names = append(names, path)
	}
	slices.Sort(names)
	return names
}

// packed returns the bytes of a tarball of the files.
func packed(t *testing.T, names ...string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.tar.gz")
	if err := run(append([]string{out, "elrun-x"}, names...)); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The tarball does not depend on the order of arguments, nor on the times and the umask of the
// files.
func TestSameBytes(t *testing.T) {
	first := folder(t, time.Unix(1e9, 0), map[string]os.FileMode{"elrun": 0o755, "LICENSE": 0o644, "README.md": 0o644})
	second := folder(t, time.Unix(2e9, 7), map[string]os.FileMode{"elrun": 0o700, "LICENSE": 0o600, "README.md": 0o664})
	slices.Reverse(second)
	if !bytes.Equal(packed(t, first...), packed(t, second...)) {
		t.Error("the same files give different bytes")
	}
}

func TestEntries(t *testing.T) {
	z, err := gzip.NewReader(bytes.NewReader(packed(t, folder(t, time.Now(), map[string]os.FileMode{"elrun": 0o755, "LICENSE": 0o600})...)))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %o %s%d:%d %s %s", h.Name, h.Mode, h.Uname, h.Uid, h.Gid, h.ModTime.UTC().Format(time.DateOnly), b))
	}
	want := []string{"elrun-x/ 755 0:0 2000-01-01 ", "elrun-x/LICENSE 644 0:0 2000-01-01 LICENSE", "elrun-x/elrun 755 0:0 2000-01-01 elrun"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// After a failure there is no tarball.
func TestFailures(t *testing.T) {
	one := folder(t, time.Now(), map[string]os.FileMode{"a": 0o644})[0]
	two := folder(t, time.Now(), map[string]os.FileMode{"a": 0o644})[0]
	out := filepath.Join(t.TempDir(), "out.tar.gz")
	for want, args := range map[string][]string{
		"usage":     {out, "x"},
		"no such":   {out, "x", one + "-missing"},
		"same name": {out, "x", one, two},
	} {
		if err := run(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if left, _ := filepath.Glob(out + "*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
