package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/trainer/checkpoint"
)

// outcome is the result of a successful job.
type outcome struct{ sha256, stdout, stderr string }

// trained runs a job to its end and returns its outcome.
func trained(t *testing.T, args ...string) outcome {
	t.Helper()
	status, out, errs := command(t, t.Context(), args...)
	at := strings.LastIndex(out, "sha256=")
	if status != 0 || at < 0 {
		t.Fatalf("%v: status %d, output %q, errors %q", args, status, out, errs)
	}
	return outcome{out[at:], out, errs}
}

// newestIn returns the newest checkpoint and its step. Which steps are saved depends on the speed
// of writing.
func newestIn(t *testing.T, dir string) (path string, step int) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "step-*.safetensors"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no checkpoint in %s (%v)", dir, err)
	}
	path = slices.Max(paths)
	if _, err := fmt.Sscanf(filepath.Base(path), "step-%d.safetensors", &step); err != nil {
		t.Fatal(err)
	}
	return path, step
}

// checkResumed requires that a job has resumed after a step, and has the same final weights. With
// --eval-every the steps are in its output; a resumed job shows the score of the last step, too.
func checkResumed(t *testing.T, got, whole outcome, after int) {
	t.Helper()
	if got.sha256 != whole.sha256 {
		t.Errorf("%s resumed after step %d, %s in one go", got.sha256, after, whole.sha256)
	}
	for line := range strings.Lines(got.stdout) {
		var step int
		if n, _ := fmt.Sscanf(line, "step %d/14", &step); n == 1 && step < after {
			t.Errorf("resumed after step %d, and computed step %d", after, step)
		}
	}
}

// A job that resumes from a checkpoint has the same final weights as an uninterrupted one, in
// exact mode and without.
func TestResume(t *testing.T) {
	data := tinyMNIST(t)
	for _, mode := range []string{"--exact", "--optimizer=adam"} {
		dir := t.TempDir()
		args := []string{mode, "--data", data, "--global-batch", "30", "--microbatch", "4", "--hidden", "12", "--passes", "2"}
		whole := trained(t, args...)
		saving := trained(t, append(args, "--checkpoint", dir, "--checkpoint-every", "4")...)
		if saving.sha256 != whole.sha256 {
			t.Errorf("%s: %s, with checkpoints %s", mode, whole.sha256, saving.sha256)
		}
		newest, step := newestIn(t, dir)
		checkResumed(t, trained(t, append(args, "--resume", dir, "--eval-every", "1")...), whole, step)

		// The latest checkpoint is damaged. It is skipped, and the user gets a message.
		b, err := os.ReadFile(newest)
		if err != nil {
			t.Fatal(err)
		}
		torn := filepath.Join(dir, fmt.Sprintf("step-%012d.safetensors", step+1))
		write(t, torn, b[:len(b)-1])
		resumed := trained(t, append(args, "--resume", dir, "--eval-every", "1")...)
		checkResumed(t, resumed, whole, step)
		if !strings.Contains(resumed.stderr, torn) || !strings.Contains(resumed.stderr, "damaged") {
			t.Errorf("%s: errors %q do not name the torn file", mode, resumed.stderr)
		}

		status, _, errs := command(t, t.Context(), append(args, "--resume", dir, "--seed", "9")...)
		if status != statusFailed || !strings.Contains(errs, "seed") {
			t.Errorf("%s: status %d, errors %q; want a word about the seed", mode, status, errs)
		}
	}
}

func TestExactIsAnotherSumOfTheSame(t *testing.T) {
	data := tinyMNIST(t)
	args := []string{"--data", data, "--steps", "8", "--hidden", "10", "--global-batch", "40"}
	exact := trained(t, append(args, "--exact")...)
	again := trained(t, append(args, "--exact", "--pace", "1us", "--slow", "0:1.5")...)
	plain := trained(t, args...)
	if exact.sha256 != again.sha256 || exact.sha256 == plain.sha256 {
		t.Errorf("exact %s, slowed down %s, plain %s", exact.sha256, again.sha256, plain.sha256)
	}
}

func TestSave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model-caf\xe9.safetensors") // names of files need not be UTF-8
	trained(t, "--data", tinyMNIST(t), "--steps", "1", "--hidden", "13", "--save", path)
	tensors, metadata, err := checkpoint.ReadSafetensors(path)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, x := range tensors {
		got += fmt.Sprintf("%s%v ", x.Name, x.Shape)
	}
	if want := "layer0.weight[784 13] layer0.bias[13] layer2.weight[13 10] layer2.bias[10] "; got != want || metadata["format"] != "elrun" {
		t.Errorf("tensors %s, metadata %v; want %s", got, metadata, want)
	}
	status, _, errs := command(t, t.Context(), "--data", tinyMNIST(t), "--steps", "1", "--save", filepath.Join(path, "x"))
	if status != statusFailed || !strings.Contains(errs, path) {
		t.Errorf("status %d, errors %q; want the path", status, errs)
	}
}

func TestStatuses(t *testing.T) {
	for want, err := range map[int]error{
		0:            fmt.Errorf("trainer: after step 3: %w", elastic.ErrLeft),
		statusQuorum: fmt.Errorf("trainer: after step 3: %w", elastic.ErrQuorum),
		statusFailed: errors.New("boom"),
	} {
		if got := statusOf(err); got != want {
			t.Errorf("%v: status %d, want %d", err, got, want)
		}
	}
}

// hashed returns the hash of the data in dir.
func hashed(t *testing.T, dir string) string {
	t.Helper()
	train, test, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	hash, err := hashOf(train, test)
	if err := errors.Join(err, train.Close(), test.Close()); err != nil {
		t.Fatal(err)
	}
	return hash
}

// Every byte of an image or a label affects the hash. Compression of the files does not.
func TestDataHash(t *testing.T) {
	dir := tinyMNIST(t)
	first := hashed(t, dir)
	for _, name := range []string{"train-images-idx3-ubyte", "t10k-labels-idx1-ubyte"} {
		path := filepath.Join(dir, name)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[20] ^= 1
		write(t, path, b)
		if second := hashed(t, dir); second == first {
			t.Errorf("the hash %s does not depend on %s", first, name)
		}
		b[20] ^= 1
		write(t, path, b)
	}
	pack(t, dir)
	if packed := hashed(t, dir); packed != first {
		t.Errorf("hashes %s, packed %s", first, packed)
	}
}

// pack compresses all files in dir.
func pack(t *testing.T, dir string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*-ubyte"))
	if err != nil || len(paths) != 4 {
		t.Fatalf("files %v, error %v", paths, err)
	}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, err = w.Write(b)
		if err := errors.Join(err, w.Close(), os.Remove(path)); err != nil {
			t.Fatal(err)
		}
		write(t, path+".gz", packed.Bytes())
	}
}

// Mapped files and files that are decompressed into memory train the same model.
func TestPackedDataIsTheSameData(t *testing.T) {
	dir := tinyMNIST(t)
	args := []string{"--data", dir, "--steps", "5", "--hidden", "10", "--global-batch", "60"}
	mapped := trained(t, args...)
	pack(t, dir)
	if packed := trained(t, args...); packed.sha256 != mapped.sha256 {
		t.Errorf("packed %s, mapped %s", packed.sha256, mapped.sha256)
	}
}

// If data is truncated while it is in use, the gradient fails with an error that names the file.
func TestDataIsCutOff(t *testing.T) {
	dir := tinyMNIST(t)
	path := filepath.Join(dir, "train-images-idx3-ubyte")
	var o options
	train, test, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer train.Close()
	defer test.Close()
	o.Model = "softmax"
	network, err := o.network(train)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 5000); err != nil {
		t.Fatal(err)
	}
	grad := [][]float32{make([]float32, 7840), make([]float32, 10)}
	model := network.Model()
	model.Prefetch(t.Context(), []int{0, 150})
	if _, err := model.Accumulate(grad, []int{0, 150}, nil); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("error %v, want the problem with %s", err, path)
	}
}

// Evaluation between steps does not change the trained weights. The last score is the score of the result.
func TestEvalEvery(t *testing.T) {
	args := []string{"--data", tinyMNIST(t), "--global-batch", "30", "--microbatch", "4", "--hidden", "12", "--steps", "9"}
	without, with := trained(t, args...), trained(t, append(args, "--eval-every", "4")...)
	if with.sha256 != without.sha256 {
		t.Errorf("%s, with scores %s", without.sha256, with.sha256)
	}
	var steps []string
	for line := range strings.Lines(with.stdout) {
		if step, rest, ok := strings.Cut(line, " accuracy="); ok && strings.Contains(rest, "test loss=") {
			steps = append(steps, step)
		}
	}
	if want := []string{"step 4/9", "step 8/9", "step 9/9"}; !slices.Equal(steps, want) {
		t.Errorf("scores at %q, want %q; output %q", steps, want, with.stdout)
	}
}
