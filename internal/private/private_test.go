//go:build unix

package private

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Create returns a private and empty file, whether the file existed before or not.
func TestCreate(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	dir := t.TempDir()
	for name, before := range map[string]fs.FileMode{"new": 0, "open": 0o666, "read only for others": 0o644, "private": 0o600} {
		path := filepath.Join(dir, name)
		if before != 0 {
			if err := os.WriteFile(path, []byte("old text"), before); err != nil {
				t.Fatal(err)
			}
		}
		f, err := Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("new"); err != nil {
			t.Error(err)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != File || info.Size() != 3 {
			t.Errorf("%s: mode %v, %d bytes, error %v", name, info.Mode(), info.Size(), err)
		}
	}
}

// Create opens a file that is not regular, and does not change its mode.
func TestCreateDevice(t *testing.T) {
	before, err := os.Stat(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	f, err := Create(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if after, err := os.Stat(os.DevNull); err != nil || after.Mode() != before.Mode() {
		t.Errorf("mode %v, before %v, error %v", after.Mode(), before.Mode(), err)
	}
}

// Create returns an error if the folder does not exist.
func TestCreateFails(t *testing.T) {
	if _, err := Create(filepath.Join(t.TempDir(), "missing", "x")); err == nil {
		t.Error("a file was made in a folder that is missing")
	}
}

// MkdirAll creates private folders, whatever the umask.
func TestMkdirAll(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	dir := t.TempDir()
	if err := MkdirAll(filepath.Join(dir, "a", "b")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "a/b"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != Folder {
			t.Errorf("%s: %v, error %v", name, info.Mode(), err)
		}
	}
}
