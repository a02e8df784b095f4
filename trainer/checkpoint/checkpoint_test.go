package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
)

// sample is a header with all fields set.
func sample(step int64) Header {
	return Header{Step: step, Pass: 2, Position: 512, Seed: 1<<64 - 1, Samples: 60000, GlobalBatch: 512, Microbatch: 16,
		Optimizer: "SGD{0.9 true 0}", DataHash: "abc", Settings: map[string]string{"clip": `"elrun.checksum":"1"`},
		State: json.RawMessage(`{"Attempt":3}`)}
}

// stateOf returns the state of a step: two tensors with n elements together. The values differ between steps.
func stateOf(step int64, n int) []Tensor {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(int64(i)*7 + step*13)
	}
	return []Tensor{{"layer0.bias", []int{n / 3}, v[:n/3], nil}, {"layer0.weight", []int{1, n - n/3}, v[n/3:], nil}}
}

// blank returns tensors with the same names and shapes, and no values.
func blank(tensors []Tensor) []Tensor {
	out := slices.Clone(tensors)
	for i := range out {
		out[i].Data = make([]float32, len(out[i].Data))
	}
	return out
}

func mustWrite(t *testing.T, dir string, step int64, state []Tensor) string {
	t.Helper()
	path, err := Write(dir, sample(step), state)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// checkLatest checks that the latest checkpoint has the given step. The reported problems must contain the given words, in this
// order.
func checkLatest(t *testing.T, dir string, step int64, n int, words ...string) {
	t.Helper()
	c, problems, err := Latest(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := blank(stateOf(step, n))
	slices.Reverse(got) // the order does not matter
	err = c.Load(got)
	slices.Reverse(got)
	if err != nil || !reflect.DeepEqual(got, stateOf(step, n)) {
		t.Fatalf("state %v, error %v; want that of step %d", got, err, step)
	}
	if want := sample(step); !reflect.DeepEqual(c.Header, want) {
		t.Errorf("header %+v, want %+v", c.Header, want)
	}
	if len(problems) != len(words) {
		t.Fatalf("problems %v, want %q", problems, words)
	}
	for i, p := range problems {
		if !strings.Contains(p.String(), words[i]) || !strings.Contains(p.String(), p.Path) {
			t.Errorf("problem %q, want %q in it", p, words[i])
		}
	}
}

func TestWriteAndRead(t *testing.T) {
	for _, n := range []int{0, 1, 999, 1 << 20} {
		dir := filepath.Join(t.TempDir(), "new", "folder")
		mustWrite(t, dir, 7, stateOf(7, n))
		path := mustWrite(t, dir, 12, stateOf(12, n))
		if filepath.Base(path) != "step-000000000012.safetensors" {
			t.Errorf("path %s", path)
		}
		checkLatest(t, dir, 12, n)
		mustWrite(t, dir, 12, stateOf(12, n)) // replaces the checkpoint
		checkLatest(t, dir, 12, n)
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
			t.Errorf("%d files, error %v; want 2", len(entries), err)
		}
	}
}

// File names sort by step, as numbers.
func TestLatestIsByStep(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []int64{9, 1e12 - 1, 1e11, 10} {
		mustWrite(t, dir, step, stateOf(step, 10))
	}
	checkLatest(t, dir, 1e12-1, 10)
}

// Latest skips a file that is truncated at any byte, and opens the previous checkpoint.
func TestTornAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, dir, 1, stateOf(1, 100))
	path := mustWrite(t, dir, 2, stateOf(2, 100))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		overwrite(t, path, whole[:n])
		checkLatest(t, dir, 1, 100, "damaged")
	}
	overwrite(t, path, append(whole, 0))
	checkLatest(t, dir, 1, 100, "damaged")
	overwrite(t, path, whole[:len(whole)-1])
	checkLatest(t, dir, 1, 100, "399 bytes of data, but the header describes 400")
}

func overwrite(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Any single flipped bit is detected.
func TestFlippedBits(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, dir, 1, stateOf(1, 300))
	path := mustWrite(t, dir, 2, stateOf(2, 300))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 8 * len(whole) {
		whole[i/8] ^= 1 << (i % 8)
		if _, err := decode(bytes.NewReader(whole), int64(len(whole))); err == nil {
			t.Fatalf("bit %d of byte %d is flipped and nobody notices", i%8, i/8)
		}
		if i%501 == 0 {
			overwrite(t, path, whole)
			checkLatest(t, dir, 1, 300, "step-000000000002.safetensors")
		}
		whole[i/8] ^= 1 << (i % 8)
	}
}

func TestFilesThatAreNoCheckpoints(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, dir, 1, stateOf(1, 5))
	other := mustWrite(t, dir, 3, stateOf(3, 5))
	later, err := os.ReadFile(other)
	if err != nil {
		t.Fatal(err)
	}
	overwrite(t, filepath.Join(dir, fileName(9)), bytes.Replace(later, []byte(`.version":"2"`), []byte(`.version":"3"`), 1))
	overwrite(t, filepath.Join(dir, fileName(8)), nil)
	if err := WriteSafetensors(filepath.Join(dir, fileName(7)), stateOf(7, 5), nil); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, fileName(6)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, fileName(5))); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(other, filepath.Join(dir, fileName(4))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"step-2.safetensors", "step-000000000000.safetensors", "model.safetensors", "step-0000000000zz.safetensors",
		"step--00000000001.safetensors", "step-000000000012.elrun", temporaryName(fileName(11))} {
		overwrite(t, filepath.Join(dir, name), []byte("x"))
	}
	checkLatest(t, dir, 1, 5, "unknown version 3", "0 bytes are too few", "it is not a checkpoint", "not a regular file",
		"no such file", "the file is of step 3")
}

// Latest skips a checkpoint that does not fit the job, as it skips a damaged one.
func TestAlienCheckpoints(t *testing.T) {
	dir := t.TempDir()
	for step := range int64(4) {
		mustWrite(t, dir, step+1, stateOf(step+1, 3))
	}
	alien := errors.New("it was made with another seed")
	c, problems, err := Latest(dir, func(h Header) error {
		if h.Step > 2 {
			return alien
		}
		return nil
	})
	if err != nil || c.Step != 2 || len(problems) != 2 || !errors.Is(problems[1].Err, alien) {
		t.Fatalf("problems %v, error %v", problems, err)
	}
	c.Close()
	_, problems, err = Latest(dir, func(Header) error { return alien })
	if !errors.Is(err, ErrNone) || len(problems) != 4 {
		t.Errorf("problems %v, error %v; want 4 and ErrNone", problems, err)
	}
}

func TestMissingAndForbiddenFolders(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := Latest(dir, nil); !errors.Is(err, ErrNone) || !strings.Contains(err.Error(), dir) {
		t.Errorf("empty folder: %v", err)
	}
	if _, _, err := Latest(filepath.Join(dir, "missing"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing folder: %v", err)
	}
	file := filepath.Join(dir, "file")
	overwrite(t, file, nil)
	if _, err := Write(file, sample(1), nil); err == nil || !strings.Contains(err.Error(), "write step 1") {
		t.Errorf("a file for a folder: %v", err)
	}
	if os.Getuid() == 0 { // root ignores permissions
		return
	}
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	if _, err := Write(dir, sample(1), nil); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("a folder that cannot be written to: %v", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, dir, 1, stateOf(1, 3))
	if err := os.Chmod(mustWrite(t, dir, 2, stateOf(2, 3)), 0); err != nil {
		t.Fatal(err)
	}
	checkLatest(t, dir, 1, 3, "permission denied")
}

// limited is a writer that fails after n bytes, as on a full disk.
type limited struct{ left int }

var errFull = errors.New("no space left on device")

func (l *limited) Write(p []byte) (int, error) {
	if len(p) > l.left {
		n := l.left
		l.left = 0
		return n, errFull
	}
	l.left -= len(p)
	return len(p), nil
}

// The error of any write reaches the caller.
func TestFullDisk(t *testing.T) {
	var whole bytes.Buffer
	if err := encode(&whole, sample(1), stateOf(1, 300)); err != nil {
		t.Fatal(err)
	}
	for n := range whole.Len() {
		if err := encode(&limited{n}, sample(1), stateOf(1, 300)); !errors.Is(err, errFull) {
			t.Fatalf("disk full after %d of %d bytes: error %v", n, whole.Len(), err)
		}
	}
	tensors := []Tensor{{"a", []int{3}, make([]float32, 3), nil}, {"b", nil, make([]float32, 1), nil}}
	whole.Reset()
	if err := encodeTensors(&whole, tensors, nil); err != nil {
		t.Fatal(err)
	}
	for n := range whole.Len() {
		if err := encodeTensors(&limited{n}, tensors, nil); !errors.Is(err, errFull) {
			t.Fatalf("disk full after %d bytes of safetensors: error %v", n, err)
		}
	}
}

// A failed write leaves the folder as it was.
func TestFailedWriteLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	mustWrite(t, dir, 5, stateOf(5, 10))
	twice := append(stateOf(5, 10), stateOf(5, 10)...)
	for _, step := range []int64{5, 6} {
		if path, err := Write(dir, sample(step), twice); err == nil || path != "" {
			t.Errorf("step %d: %q, error %v", step, path, err)
		}
	}
	for _, step := range []int64{0, -1, 1e12} {
		if _, err := Write(dir, sample(step), nil); err == nil {
			t.Errorf("step %d was written", step)
		}
	}
	checkLatest(t, dir, 5, 10)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%d files, error %v; want 1", len(entries), err)
	}
}

func TestLoadErrors(t *testing.T) {
	dir := t.TempDir()
	path := mustWrite(t, dir, 1, stateOf(1, 5000))
	c, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	whole := stateOf(1, 5000)
	for want, tensors := range map[string][]Tensor{
		`has a tensor "layer0.weight"`:                     whole[:1],
		`no tensor "scale"`:                                append(blank(whole), Tensor{"scale", nil, make([]float32, 1), nil}),
		`no tensor "layer0.bias", or the program requests`: {whole[0], whole[0]},
		"has the shape [1666], want 1665":                  {{"layer0.bias", []int{1666}, make([]float32, 1665), nil}, whole[1]},
		"want 1666 elements in the shape [833 2]":          {{"layer0.bias", []int{833, 2}, whole[0].Data, nil}, whole[1]},
	} {
		if err := c.Load(tensors); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	// The file is damaged after it was opened.
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-100] ^= 1
	overwrite(t, path, b)
	if err := c.Load(blank(whole)); !errors.Is(err, ErrDamaged) {
		t.Errorf("error %v, want ErrDamaged", err)
	}
}

// Other programs read a checkpoint as safetensors, and get the tensors and the header.
func TestCheckpointIsSafetensors(t *testing.T) {
	path := mustWrite(t, t.TempDir(), 4, stateOf(4, 100))
	tensors, metadata, err := ReadSafetensors(path)
	if err != nil || !reflect.DeepEqual(tensors, stateOf(4, 100)) || !strings.Contains(metadata[headerKey], `"global_batch":512`) {
		t.Errorf("tensors %v, metadata %v, error %v", tensors, metadata, err)
	}
}

// Several launchers may write to the same folder at the same time, and each checkpoint in it is
// complete.
func TestConcurrentWriters(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for step := int64(1); step <= 10; step++ {
				if _, err := Write(dir, sample(step), stateOf(step, 20_000)); err != nil {
					t.Error(err)
				}
				if err := Keep(dir, 3, step); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	checkLatest(t, dir, 10, 20_000)
}

func TestKeep(t *testing.T) {
	dir := t.TempDir()
	for _, step := range []int64{10, 20, 30, 40, 900} { // step 900 belongs to another run
		mustWrite(t, dir, step, stateOf(step, 1))
	}
	if err := Keep(dir, 2, 40); err != nil {
		t.Fatal(err)
	}
	want := []string{fileName(30), fileName(40), fileName(900)}
	if got := names(t, dir); !reflect.DeepEqual(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
	if err := Keep(dir, 5, 40); err != nil || len(names(t, dir)) != 3 {
		t.Errorf("error %v, files %v", err, names(t, dir))
	}
	if err := Keep(dir, 0, 40); err == nil {
		t.Error("keeping 0 was accepted")
	}
	if err := Keep(filepath.Join(dir, "missing"), 1, 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing folder: %v", err)
	}
	// A file that cannot be deleted is reported.
	if err := os.MkdirAll(filepath.Join(dir, fileName(1), "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Keep(dir, 1, 30); err == nil || !strings.Contains(err.Error(), fileName(1)) {
		t.Errorf("error %v, want the file's name", err)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func FuzzDecode(f *testing.F) {
	var whole bytes.Buffer
	if err := encode(&whole, sample(3), stateOf(3, 40)); err != nil {
		f.Fatal(err)
	}
	f.Add(whole.Bytes())
	f.Add(whole.Bytes()[:50])
	f.Add(bytes.Replace(whole.Bytes(), []byte("512"), []byte("612"), 1))
	f.Add(bytes.Replace(whole.Bytes(), []byte(checksumKey), []byte("elrun.checksvm"), 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decode(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		// An accepted file can be written again with the same content.
		tensors, _, err := decodeTensors(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			t.Fatal(err)
		}
		var again bytes.Buffer
		if err := encode(&again, c.Header, tensors); err != nil {
			t.Fatal(err)
		}
		other, err := decode(bytes.NewReader(again.Bytes()), int64(again.Len()))
		if err != nil || fmt.Sprint(other.Header) != fmt.Sprint(c.Header) {
			t.Fatalf("%+v comes back as %+v, error %v", c.Header, other.Header, err)
		}
	})
}
