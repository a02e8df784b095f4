package checkpoint

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"testing"
)

// If the environment variable dieVariable is set, the test program begins to write a file, reports that, and waits to be killed.
const dieVariable = "ELRUN_TEST_WRITE_AND_WAIT"

func TestMain(m *testing.M) {
	if path := os.Getenv(dieVariable); path != "" {
		err := replace(path, func(w io.Writer) error {
			fmt.Println("writing")
			_, err := io.Copy(w, os.Stdin) // does not return before the test ends
			return err
		})
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// startWriter starts a process that begins to write path. The returned function kills the process.
func startWriter(t *testing.T, path string) (kill func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), dieVariable+"="+path)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	return func() {
		_ = cmd.Process.Kill() // the process may be dead already
		_ = cmd.Wait()         // the error says that it was killed
	}
}

// temporaries returns the names of temporary files in dir.
func temporaries(t *testing.T, dir string) []string {
	t.Helper()
	return slices.DeleteFunc(names(t, dir), func(name string) bool {
		_, ok := temporaryOf(name)
		return !ok
	})
}

// A writer deletes the temporary files of a killed writer. It does not delete files that other
// processes are writing, or files with similar names.
func TestKilledWriterIsSweptUp(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no locks that end with a process")
	}
	model := func(dir string) (string, func() error) {
		path := filepath.Join(dir, "model.safetensors")
		return path, func() error { return WriteSafetensors(path, twoTensors(), nil) }
	}
	ofStep := func(dir string) (string, func() error) {
		return filepath.Join(dir, fileName(3)), func() error {
			_, err := Write(dir, sample(4), stateOf(4, 10))
			return err
		}
	}
	for name, make := range map[string]func(string) (string, func() error){"safetensors": model, "checkpoint": ofStep} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, save := make(dir)
			strangers := []string{"notes.tmp", filepath.Base(path) + ".tmp", filepath.Base(path) + ".0123456789abcde.tmp",
				filepath.Base(path) + ".0123456789ABCDEF.tmp", "other.safetensors.0123456789abcdef.tmp"}
			for _, s := range strangers {
				overwrite(t, filepath.Join(dir, s), []byte("x"))
			}
			link := filepath.Join(dir, filepath.Base(path)+".00000000000000aa.tmp")
			if err := os.Symlink(filepath.Join(dir, "notes.tmp"), link); err != nil {
				t.Fatal(err)
			}
			killed := startWriter(t, path)
			left := temporaries(t, dir)
			defer startWriter(t, path)()
			alive := slices.DeleteFunc(temporaries(t, dir), func(n string) bool { return slices.Contains(left, n) })
			if len(alive) != 1 {
				t.Fatalf("files %v, before %v", alive, left)
			}
			killed()
			if err := save(); err != nil {
				t.Fatal(err)
			}
			want := append(alive, "other.safetensors.0123456789abcdef.tmp", filepath.Base(link))
			slices.Sort(want)
			if got := temporaries(t, dir); !reflect.DeepEqual(got, want) {
				t.Errorf("files %v, want %v", got, want)
			}
			for _, s := range strangers {
				if _, err := os.Stat(filepath.Join(dir, s)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestTemporaryNames(t *testing.T) {
	for range 100 {
		if base, ok := temporaryOf(temporaryName("a.b")); !ok || base != "a.b" {
			t.Fatalf("%q, %v", base, ok)
		}
	}
	for _, name := range []string{"", ".tmp", "a.tmp", ".0123456789abcdef.tmp", "a.+123456789abcdef.tmp", "a.0123456789abcdeg.tmp", "a0123456789abcdef.tmp", "a.0123456789abcdef.tmpx"} {
		if base, ok := temporaryOf(name); ok {
			t.Errorf("%q is the temporary name of %q", name, base)
		}
	}
}
