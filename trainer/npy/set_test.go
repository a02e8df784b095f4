package npy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/trainer/npy"
	"pgregory.net/rapid"
)

// digits writes three images of 2 x 2 and their labels, and returns the paths.
func digits(t testing.TB) npy.Files {
	return npy.Files{
		Inputs:  write(t, "x.npy", file(dict("|u1", "(3, 2, 2)"), []byte{0, 255, 51, 1, 2, 3, 4, 5, 255, 255, 255, 0})),
		Labels:  write(t, "y.npy", file(dict("<i8", "(3,)"), six(t, []int64{7, 0, 9}))),
		Classes: 10,
		Scale:   1.0 / 255,
	}
}

func TestSet(t *testing.T) {
	set, err := npy.Open(digits(t))
	if err != nil {
		t.Fatal(err)
	}
	if set.Len() != 3 || set.Size() != 4 || !slices.Equal(set.Shape(), []int{2, 2}) {
		t.Errorf("%d samples of %d inputs, shape %v", set.Len(), set.Size(), set.Shape())
	}
	set.Prefetch(t.Context(), []int{2, 0, -1, 3})
	got := make([]float32, 4)
	if label := set.Sample(got, 0); label != 7 || got[1] != 255*float32(1.0/255) || got[2] != 51*float32(1.0/255) {
		t.Errorf("sample 0: label %d, inputs %v", label, got)
	}
	if label := set.Sample(got, 2); label != 9 || got[3] != 0 {
		t.Errorf("sample 2: label %d, inputs %v", label, got)
	}
	var all bytes.Buffer
	if n, err := set.WriteTo(&all); err != nil || n != 12+24 || all.Bytes()[1] != 255 || all.Bytes()[12] != 7 {
		t.Errorf("all: %d bytes %v, error %v", n, all.Bytes(), err)
	}
	if err := errors.Join(set.Err(), set.Close()); err != nil {
		t.Error(err)
	}
}

// Labels may have any integer type, and may form a column. The type of the inputs makes no difference.
func TestSetsOfEveryType(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		labels := rapid.SliceOfN(rapid.IntRange(0, 99), 0, 300).Draw(rt, "labels")
		shape := rapid.SampledFrom([]string{"(%d,)", "(%d, 1)"}).Draw(rt, "shape")
		wide := rapid.Bool().Draw(rt, "wide")
		var inputs, classes []byte
		for i, l := range labels {
			inputs = append(inputs, byte(i), byte(i+1))
			classes = append(classes, byte(l))
			if wide {
				classes = append(classes, 0)
			}
		}
		descr := map[bool]string{false: "|i1", true: "<u2"}[wide]
		set, err := npy.Open(npy.Files{
			Inputs:  write(t, "x.npy", file(dict("|u1", fmt.Sprintf("(%d, 2)", len(labels))), inputs)),
			Labels:  write(t, "y.npy", file(dict(descr, fmt.Sprintf(shape, len(labels))), classes)),
			Classes: 100,
		})
		if err != nil {
			rt.Fatal(err)
		}
		got := make([]float32, 2)
		for i, l := range labels {
			if label := set.Sample(got, i); label != l || got[0] != float32(byte(i)) || got[1] != float32(byte(i+1)) {
				rt.Fatalf("sample %d: label %d, inputs %v; want label %d", i, label, got, l)
			}
		}
		if err := errors.Join(set.Err(), set.Close()); err != nil {
			rt.Fatal(err)
		}
	})
}

func TestSetErrors(t *testing.T) {
	good := digits(t)
	labels := func(descr, shape string, elements any) npy.Files {
		return npy.Files{Inputs: good.Inputs, Classes: 10, Labels: write(t, "labels.npy", file(dict(descr, shape), six(t, elements)))}
	}
	for name, tt := range map[string]struct {
		files npy.Files
		is    error
		want  string
	}{
		"no inputs":  {npy.Files{Inputs: "none.npy", Labels: good.Labels, Classes: 10}, fs.ErrNotExist, "none.npy"},
		"no labels":  {npy.Files{Inputs: good.Inputs, Labels: "none.npy", Classes: 10}, fs.ErrNotExist, "none.npy"},
		"swapped":    {npy.Files{Inputs: good.Labels, Labels: good.Inputs, Classes: 10}, npy.ErrFormat, "one for each sample"},
		"floats":     {labels("<f4", "(3,)", []float32{1, 2, 3}), npy.ErrFormat, "want integers; save a.astype('<i8')"},
		"booleans":   {labels("|b1", "(3,)", []uint8{1, 0, 1}), npy.ErrFormat, "want integers"},
		"too few":    {labels("|u1", "(2,)", []uint8{1, 2}), npy.ErrFormat, "2 labels"},
		"too large":  {labels("|u1", "(3,)", []uint8{1, 2, 10}), npy.ErrFormat, "label 2 in"},
		"negative":   {labels("|i1", "(3,)", []int8{1, -2, 1}), npy.ErrFormat, "is -2, but there are 10 classes"},
		"wraps":      {labels("<u8", "(3,)", []uint64{1, 1 << 63, 1}), npy.ErrFormat, "but there are 10 classes"},
		"one-hot":    {labels("|u1", "(3, 2)", []uint8{1, 0, 1, 0, 1, 0}), npy.ErrFormat, "a.argmax(1)"},
		"no classes": {npy.Files{Inputs: good.Inputs, Labels: good.Labels}, npy.ErrFormat, "there are 0 classes"},
	} {
		_, err := npy.Open(tt.files)
		if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), ".npy") {
			t.Errorf("%s: error %v, want %v with %q", name, err, tt.is, tt.want)
		}
	}
}

// If a file is truncated while it is mapped, reads of the missing part return errors, without a
// crash.
func TestCutOffWhileInUse(t *testing.T) {
	for _, which := range []string{"inputs", "labels"} {
		files := npy.Files{Inputs: write(t, "x.npy", file(dict("<f4", "(5000, 2)"), make([]byte, 40_000))),
			Labels: write(t, "y.npy", file(dict("<i8", "(5000,)"), make([]byte, 40_000))), Classes: 1}
		set, err := npy.Open(files)
		if err != nil {
			t.Fatal(err)
		}
		path := map[string]string{"inputs": files.Inputs, "labels": files.Labels}[which]
		if err := os.Truncate(path, 100); err != nil {
			t.Fatal(err)
		}
		if label := set.Sample(make([]float32, 2), 4999); label != -1 || set.Err() == nil || !strings.Contains(set.Err().Error(), path) {
			t.Errorf("%s cut off: label %d, error %v; want -1 and %s", which, label, set.Err(), path)
		}
		if _, err := set.WriteTo(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s cut off: all: error %v, want one with %s", which, err, path)
		}
		if err := set.Close(); err != nil {
			t.Error(err)
		}
		if _, err := set.WriteTo(&bytes.Buffer{}); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("closed: error %v", err)
		}
	}
}

func Example() {
	dir, err := os.MkdirTemp("", "npy")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	x, y := filepath.Join(dir, "x.npy"), filepath.Join(dir, "y.npy")
	// The files have the content of numpy.save(x, numpy.array([[1, 2], [3, 4]], 'u1')) and numpy.save(y, numpy.array([0, 1],
	// 'u1')).
	err = errors.Join(os.WriteFile(x, file(dict("|u1", "(2, 2)"), []byte{1, 2, 3, 4}), 0o600),
		os.WriteFile(y, file(dict("|u1", "(2,)"), []byte{0, 1}), 0o600))
	if err != nil {
		fmt.Println(err)
		return
	}
	set, err := npy.Open(npy.Files{Inputs: x, Labels: y, Classes: 2})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer set.Close()
	inputs := make([]float32, set.Size())
	for i := range set.Len() {
		label := set.Sample(inputs, i)
		fmt.Println(inputs, label)
	}
	// Output:
	// [1 2] 0
	// [3 4] 1
}
