//go:build unix

package checkpoint

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Only the user may read models and checkpoints. Neither the umask nor the mode of a replaced file
// changes this. The same holds for folders that Write creates.
func TestFilesArePrivate(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	dir := filepath.Join(t.TempDir(), "new")
	path := mustWrite(t, dir, 1, stateOf(1, 10))
	model := filepath.Join(dir, "model.safetensors")
	for _, p := range []string{path, model} {
		if err := os.WriteFile(p, nil, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	mustWrite(t, dir, 1, stateOf(1, 10))
	if err := WriteSafetensors(model, twoTensors(), nil); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]os.FileMode{dir: 0o700, path: 0o600, model: 0o600} {
		if info, err := os.Stat(p); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, error %v; want %v", p, info.Mode(), err, want)
		}
	}
}
