package main

import (
	"compress/gzip"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tinyMNIST returns a folder with a training set of 64 random images.
func tinyMNIST(t *testing.T) string {
	t.Helper()
	const n = 64
	dir := t.TempDir()
	write := func(name string, header []uint32, body []byte) {
		var all []byte
		for _, x := range header {
			all = binary.BigEndian.AppendUint32(all, x)
		}
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		z := gzip.NewWriter(f)
		if _, err := z.Write(append(all, body...)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	pixels, classes := make([]byte, n*28*28), make([]byte, n)
	for i := range pixels {
		pixels[i] = byte(i * i % 251)
	}
	for i := range classes {
		classes[i] = byte(i % 10)
	}
	write("train-images-idx3-ubyte.gz", []uint32{0x803, n, 28, 28}, pixels)
	write("train-labels-idx1-ubyte.gz", []uint32{0x801, n}, classes)
	return dir
}

// python returns a program that stands in for Python with torch. It checks its environment, and prints a line.
func python(t *testing.T, line string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python")
	script := "#!/bin/sh\n[ -z \"$OPENBLAS_CORETYPE$OPENBLAS_L2_SIZE\" ] || exit 1\necho '" + line + "'\n"
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTable(t *testing.T) {
	t.Setenv("OPENBLAS_CORETYPE", "Haswell")
	t.Setenv("OPENBLAS_L2_SIZE", "512")
	var out strings.Builder
	err := run(t.Context(), []string{"--data", tinyMNIST(t), "--python", python(t, "8000 4000 2.5"), "--rounds", "2", "--batch", "8"}, &out)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if err != nil || len(lines) != 3 {
		t.Fatalf("error %v, printed %q", err, out.String())
	}
	for i, name := range []string{"mlp", "cnn"} {
		f := strings.Fields(lines[1+i])
		if len(f) != 7 || f[0] != name || f[2] != "8000.00" || f[6] != "2.500" {
			t.Errorf("row %q", lines[1+i])
		}
	}
}

// The ratio is the median of the ratios, and not the ratio of the medians.
func TestRow(t *testing.T) {
	own := []times{{10, 1, 0.5}, {20, 2, 0.5}, {90, 3, 0.25}}
	other := []times{{5, 1, 1}, {5, 1, 1}, {30, 1, 0.75}}
	want := "mlp\t20.00\t5.00\t3.00\t2.00\t0.250\t0.750"
	if got := row("mlp", own, other); got != want {
		t.Errorf("row %q, want %q", got, want)
	}
}

// What cannot be measured is not a failure without torch, and one with it.
func TestWithoutTorch(t *testing.T) {
	var out strings.Builder
	missing := filepath.Join(t.TempDir(), "none")
	if err := run(t.Context(), []string{"--python", missing}, &out); err != nil || !strings.Contains(out.String(), "cannot import torch") {
		t.Errorf("error %v, printed %q", err, out.String())
	}
	for name, args := range map[string][]string{
		"no result": {"--data", tinyMNIST(t), "--python", python(t, "nothing"), "--batch", "8"},
		"no data":   {"--data", missing, "--python", python(t, "1 2 3")},
		"no rounds": {"--rounds", "0"},
	} {
		if err := run(t.Context(), args, &out); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
