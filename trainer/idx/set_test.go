package idx_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/trainer/idx"
	"pgregory.net/rapid"
)

const (
	trainImages = "train-images-idx3-ubyte"
	trainLabels = "train-labels-idx1-ubyte"
)

// openers returns the functions that open a data set.
func openers() map[string]func(dir, name string, classes int) (*idx.Set, error) {
	return map[string]func(dir, name string, classes int) (*idx.Set, error){"mapped": idx.Open, "decoded": idx.Load}
}

// A mapped, a decompressed and a decoded data set have the same images and labels. The pixels are
// the pixels in the file divided by 255. Some images are larger than the buffer of Sample.
func TestMappedIsDecoded(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rows, cols := rapid.IntRange(1, 50).Draw(rt, "rows"), rapid.IntRange(1, 50).Draw(rt, "cols")
		count := rapid.IntRange(0, 5).Draw(rt, "count")
		pixels := rapid.SliceOfN(rapid.Byte(), count*rows*cols, count*rows*cols).Draw(rt, "pixels")
		labels := rapid.SliceOfN(rapid.ByteRange(0, 9), count, count).Draw(rt, "labels")
		images := file(pixels, 0x803, uint32(count), uint32(rows), uint32(cols))
		plain := write(t, map[string][]byte{trainImages: images, trainLabels: file(labels, 0x801, uint32(count))})
		gzipped := write(t, map[string][]byte{trainImages + ".gz": packed(t, images), trainLabels: file(labels, 0x801, uint32(count))})
		for how, open := range openers() {
			for _, dir := range []string{plain, gzipped} {
				checkSet(rt, how, open, dir, &idx.Images{Count: count, Rows: rows, Cols: cols, Pixels: pixels}, labels)
			}
		}
	})
}

// checkSet checks that the set in dir has the given images and labels.
func checkSet(t *rapid.T, how string, open func(string, string, int) (*idx.Set, error), dir string, images *idx.Images, labels []byte) {
	set, err := open(dir, "train", 10)
	if err != nil {
		t.Fatalf("%s: %v", how, err)
	}
	if set.Len() != images.Count || set.Rows != images.Rows || set.Cols != images.Cols {
		t.Fatalf("%s: %d images of %d x %d", how, set.Len(), set.Rows, set.Cols)
	}
	size := images.Rows * images.Cols
	got, want := make([]float32, size), make([]float32, size)
	for i := range set.Len() {
		for j, p := range images.Pixels[i*size:][:size] {
			want[j] = float32(p) * (1.0 / 255)
		}
		if label := set.Sample(got, i); label != int(labels[i]) || !slices.Equal(got, want) {
			t.Fatalf("%s: image %d has label %d, pixels %v; want %d, %v", how, i, label, got, labels[i], want)
		}
	}
	var all bytes.Buffer
	if n, err := set.WriteTo(&all); err != nil || n != int64(all.Len()) || !bytes.Equal(all.Bytes(), slices.Concat(images.Pixels, labels)) {
		t.Fatalf("%s: all: %d bytes, error %v", how, n, err)
	}
	if err := errors.Join(set.Err(), set.Close()); err != nil {
		t.Fatalf("%s: %v", how, err)
	}
}

// For each defect of a mapped or decoded file, the error names the file and gives advice.
func TestDamagedFilesAreNamed(t *testing.T) {
	good := map[string][]byte{trainImages: twoImages(), trainLabels: file([]byte{3, 9}, 0x801, 2)}
	for _, tt := range []struct {
		name, file string
		b          []byte
		want       string
	}{
		{"empty", trainImages, nil, "has 0 bytes, want 16"},
		{"half a header", trainImages, twoImages()[:10], "has 10 bytes, want 16"},
		{"truncated", trainImages, twoImages()[:20], "ends after 4 of 6 bytes"},
		{"trailing", trainImages, append(twoImages(), 7), "more than the 6 bytes"},
		{"labels", trainImages, file([]byte{1}, 0x801, 1, 0, 0), "want 0x00000803 for images"},
		{"no pixels", trainImages, file(nil, 0x803, 5, 0, 28), "5 images of 0 x 28"},
		{"huge side", trainImages, file(nil, 0x803, 1, 1<<31, 1), "more than the largest side of an image"},
		{"cut gzip", trainImages, packed(t, twoImages())[:20], "header of images"},
		{"bad gzip", trainImages, []byte{0x1f, 0x8b, 0xff}, "gzip header"},
		{"labels truncated", trainLabels, file([]byte{3}, 0x801, 2), "ends after 1 of 2 bytes"},
		{"huge labels", trainLabels, file(nil, 0x801, 1<<25), "ends after 0 of 33554432 bytes"},
		{"class", trainLabels, file([]byte{3, 10}, 0x801, 2), "label 1 is 10, but there are 10 classes"},
	} {
		files := map[string][]byte{trainImages: good[trainImages], trainLabels: good[trainLabels], tt.file: tt.b}
		dir := write(t, files)
		for how, open := range openers() {
			_, err := open(dir, "train", 10)
			if !errors.Is(err, idx.ErrFormat) {
				t.Errorf("%s, %s: error %v, want ErrFormat", tt.name, how, err)
				continue
			}
			for _, want := range []string{tt.want, filepath.Join(dir, tt.file), "replace it by a complete file"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%s, %s: error %v does not have %q", tt.name, how, err, want)
				}
			}
		}
	}
}

// If a file is truncated while it is mapped, reads of the missing part return errors, without a
// crash.
func TestCutOffWhileInUse(t *testing.T) {
	const side = 100
	dir := write(t, map[string][]byte{
		trainImages: file(bytes.Repeat([]byte{255}, 20*side*side), 0x803, 20, side, side),
		trainLabels: file(make([]byte, 20), 0x801, 20),
	})
	set, err := idx.Open(dir, "train", 10)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, trainImages)
	if err := os.Truncate(path, 10*side*side); err != nil {
		t.Fatal(err)
	}
	pixels := make([]float32, side*side)
	set.Prefetch(t.Context(), []int{0, 19})
	if label := set.Sample(pixels, 0); label != 0 || pixels[0] != 1 || set.Err() != nil {
		t.Errorf("before the cut: label %d, pixel %v, error %v", label, pixels[0], set.Err())
	}
	for range 2 {
		if label := set.Sample(pixels, 19); label != -1 || set.Err() == nil || !strings.Contains(set.Err().Error(), path) {
			t.Errorf("after the cut: label %d, error %v, want -1 and the path", label, set.Err())
		}
	}
	if _, err := set.WriteTo(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("truncated part: error %v, want the path", err)
	}
	if err := set.Close(); err != nil {
		t.Error(err)
	}
	if label := set.Sample(pixels, 0); label != -1 {
		t.Errorf("closed: label %d", label)
	}
	if _, err := set.WriteTo(&bytes.Buffer{}); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("closed: error %v", err)
	}
}

func TestSampleOutOfRangePanics(t *testing.T) {
	dir := write(t, map[string][]byte{trainImages: twoImages(), trainLabels: file([]byte{3, 9}, 0x801, 2)})
	for how, open := range openers() {
		set, err := open(dir, "train", 10)
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", how)
				}
			}()
			set.Sample(make([]float32, 3), 2)
		}()
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	}
}

// FuzzOpen checks that Open and Load agree on any two files, and never panic.
func FuzzOpen(f *testing.F) {
	f.Add(twoImages(), file([]byte{3, 9}, 0x801, 2))
	f.Add(packed(f, twoImages()), file([]byte{3, 9}, 0x801, 2))
	f.Add(file(nil, 0x803, 1<<31, 1<<14, 1<<14), file(nil, 0x801, 1<<31))
	f.Add(file(nil, 0x803, 0, 3, 3), file(nil, 0x801, 0))
	f.Add([]byte{0x1f, 0x8b}, []byte{0})
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, images, labels []byte) {
		for name, b := range map[string][]byte{trainImages: images, trainLabels: labels} {
			if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		mapped, err := idx.Open(dir, "train", 10)
		decoded, err2 := idx.Load(dir, "train", 10)
		if (err == nil) != (err2 == nil) || err != nil && (!errors.Is(err, idx.ErrFormat) || !strings.Contains(err.Error(), dir)) {
			t.Fatalf("mapped: error %v; decoded: %v", err, err2)
		}
		if err != nil {
			return
		}
		var a, b bytes.Buffer
		_, err = mapped.WriteTo(&a)
		_, err2 = decoded.WriteTo(&b)
		if err := errors.Join(err, err2, mapped.Close(), decoded.Close()); err != nil || !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Fatalf("error %v; mapped %v, decoded %v", err, a.Bytes(), b.Bytes())
		}
	})
}
