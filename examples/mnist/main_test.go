package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tinyMNIST writes a data set in the format of MNIST: an image of class c is bright in the rows
// 2c and 2c+1, with some noise elsewhere.
func tinyMNIST(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, count := range map[string]int{"train": 200, "t10k": 50} {
		images := header(0x803, count, 28, 28)
		labels := header(0x801, count)
		for i := range count {
			class := i * 7 % classes
			labels = append(labels, byte(class))
			for p := range 28 * 28 {
				pixel := byte((p*31 + i*17) % 40)
				if row := p / 28; row/2 == class {
					pixel = 250
				}
				images = append(images, pixel)
			}
		}
		write(t, filepath.Join(dir, name+"-images-idx3-ubyte"), images)
		write(t, filepath.Join(dir, name+"-labels-idx1-ubyte"), labels)
	}
	return dir
}

func header(words ...int) []byte {
	var b []byte
	for _, w := range words {
		b = binary.BigEndian.AppendUint32(b, uint32(w))
	}
	return b
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// command runs a command line and returns its output and status. Package launch writes the result to
// os.Stdout.
func command(t *testing.T, ctx context.Context, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var errs bytes.Buffer
	was := os.Stdout
	os.Stdout = file
	status = run(ctx, args, file, &errs)
	os.Stdout = was
	out, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return status, string(out), errs.String()
}

func TestEveryModelTrainsAlone(t *testing.T) {
	dir := tinyMNIST(t)
	last := regexp.MustCompile(`^done steps=14 peers=1 accuracy=(0\.[89]\d*|1\.0000) loss=[0-9.e-]+ sha256=[0-9a-f]{64}$`)
	for _, model := range []string{"softmax", "mlp", "cnn"} {
		status, out, errs := command(t, t.Context(), "--data", dir, "--model", model, "--passes", "2", "--global-batch", "30", "--optimizer", "adam")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if status != 0 || errs != "" || !last.MatchString(lines[len(lines)-1]) || len(lines) != 1 {
			t.Errorf("%s: status %d, output:\n%s%s", model, status, out, errs)
		}
	}
}

func TestTheSeedDecidesTheWeights(t *testing.T) {
	dir := tinyMNIST(t)
	lastLine := func(args ...string) string {
		t.Helper()
		status, out, errs := command(t, t.Context(), append(args, "--data", dir, "--steps", "3", "--optimizer", "adamw")...)
		if status != 0 {
			t.Fatalf("status %d: %s", status, errs)
		}
		return out[strings.LastIndex(out, "sha256="):]
	}
	one, again, other := lastLine("--seed", "5"), lastLine("--seed", "5"), lastLine("--seed", "6")
	if one != again || one == other {
		t.Errorf("seed 5: %s and %s, seed 6: %s", one, again, other)
	}
}

func TestUsageErrors(t *testing.T) {
	for want, args := range map[string][]string{
		"--model":              {"--model", "tree"},
		"unknown flag":         {"--no-such-flag"},
		"can't be used":        {"--passes", "1", "--steps", "1"},
		"--passes: -1":         {"--passes=-1"},
		"--steps: -1":          {"--steps=-1"},
		"--global-batch: 0":    {"--global-batch", "0"},
		"--microbatch: 0":      {"--microbatch", "0"},
		"--lr: -1":             {"--lr=-1"},
		"--hidden: 0":          {"--hidden", "0"},
		"--pace: -1ms":         {"--pace=-1ms"},
		"--max-share: -2":      {"--max-share=-2"},
		"--balance: loadbal":   {"--balance=fair"},
		"is not I:F[@S[-E]]":   {"--slow", "1:0.5"},
		"add --checkpoint DIR": {"--checkpoint-every", "5"},
		"every: -1":            {"--checkpoint-every=-1"},
		"eval-every: -1":       {"--eval-every=-1"},
		"unexpected argument":  {"surplus"},
	} {
		status, out, errs := command(t, t.Context(), args...)
		if status != statusUsage || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%v: status %d, output %q, errors %q; want status 2 and %q", args, status, out, errs, want)
		}
	}
}

func TestHelp(t *testing.T) {
	status, out, _ := command(t, t.Context(), "--help")
	if status != 0 || !strings.Contains(out, "--global-batch") {
		t.Errorf("status %d, output %q", status, out)
	}
}

func TestMissingAndDamagedData(t *testing.T) {
	status, _, errs := command(t, t.Context(), "--data", t.TempDir())
	if status != statusFailed || !strings.Contains(errs, "make data") || !strings.Contains(errs, "--data") || strings.Count(errs, "\n") != 1 {
		t.Errorf("status %d, errors %q; want one line that says where data comes from", status, errs)
	}

	dir := tinyMNIST(t)
	write(t, filepath.Join(dir, "t10k-labels-idx1-ubyte"), header(0x801, 50))
	status, _, errs = command(t, t.Context(), "--data", dir)
	if status != statusFailed || !strings.Contains(errs, "t10k-labels-idx1-ubyte") || strings.Contains(errs, "make data") {
		t.Errorf("status %d, errors %q; want the damaged file", status, errs)
	}

	write(t, filepath.Join(dir, "t10k-labels-idx1-ubyte"), append(header(0x801, 1), 1))
	write(t, filepath.Join(dir, "t10k-images-idx3-ubyte"), append(header(0x803, 1, 1, 2), 1, 1))
	status, _, errs = command(t, t.Context(), "--data", dir)
	if status != statusFailed || !strings.Contains(errs, "test images of 1 x 2") {
		t.Errorf("status %d, errors %q; want the sizes", status, errs)
	}
}

func TestInterrupt(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	status, _, errs := command(t, ctx, "--data", tinyMNIST(t))
	if status != statusFailed || errs != "mnist: interrupted\n" {
		t.Errorf("status %d, errors %q", status, errs)
	}
}
