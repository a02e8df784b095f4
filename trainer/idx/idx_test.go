package idx_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
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

// file returns an IDX file with the given header words and body.
func file(body []byte, header ...uint32) []byte {
	var b []byte
	for _, w := range header {
		b = binary.BigEndian.AppendUint32(b, w)
	}
	return append(b, body...)
}

func packed(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func twoImages() []byte { return file([]byte{0, 1, 2, 3, 4, 255}, 0x803, 2, 1, 3) }

func TestImagesPlainAndPacked(t *testing.T) {
	for name, b := range map[string][]byte{"plain": twoImages(), "gzip": packed(t, twoImages())} {
		im, err := idx.DecodeImages(bytes.NewReader(b))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if im.Count != 2 || im.Rows != 1 || im.Cols != 3 || !slices.Equal(im.Pixels, []byte{0, 1, 2, 3, 4, 255}) {
			t.Errorf("%s: %+v", name, im)
		}
	}
}

func TestDamagedImages(t *testing.T) {
	tests := []struct {
		name string
		b    []byte
		want string
	}{
		{"empty", nil, "header of images has 0 bytes, want 16"},
		{"half a header", twoImages()[:10], "header of images has 10 bytes, want 16"},
		{"truncated", twoImages()[:20], "ends after 4 of 6 bytes"},
		{"trailing", append(twoImages(), 7), "more than the 6 bytes"},
		{"labels", file([]byte{1}, 0x801, 1, 0, 0), "magic number is 0x00000801, want 0x00000803 for images"},
		{"huge count", file(nil, 0x803, 1<<31, 1, 1), "more than the limit for files in memory"},
		{"huge side", file(nil, 0x803, 1, 1<<31, 1), "more than the largest side of an image"},
		{"huge product", file(nil, 0x803, 1<<20, 1<<10, 1<<10), "more than the limit for files in memory"},
		{"no pixels", file(nil, 0x803, 5, 0, 28), "5 images of 0 x 28 pixels"},
		{"claims a lot", file([]byte{1, 2}, 0x803, 1<<10, 1<<10, 1<<10), "ends after 2 of 1073741824 bytes"},
		{"bad gzip header", []byte{0x1f, 0x8b, 0xff}, "gzip header"},
		{"cut gzip", packed(t, twoImages())[:20], "header of images"},
	}
	for _, tt := range tests {
		_, err := idx.DecodeImages(bytes.NewReader(tt.b))
		if !errors.Is(err, idx.ErrFormat) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want ErrFormat with %q", tt.name, err, tt.want)
		}
	}
}

func TestDamagedLabels(t *testing.T) {
	tests := []struct {
		name string
		b    []byte
		want string
	}{
		{"images", twoImages(), "magic number is 0x00000803, want 0x00000801 for labels"},
		{"truncated", file([]byte{1, 2}, 0x801, 3), "ends after 2 of 3 bytes"},
		{"trailing", file([]byte{1, 2}, 0x801, 1), "more than the 1 bytes"},
		{"out of range", file([]byte{9, 10}, 0x801, 2), "label 1 is 10, but there are 10 classes"},
		{"huge", file(nil, 0x801, 1<<31), "more than the limit for files in memory"},
	}
	for _, tt := range tests {
		_, err := idx.DecodeLabels(bytes.NewReader(tt.b), 10)
		if !errors.Is(err, idx.ErrFormat) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want ErrFormat with %q", tt.name, err, tt.want)
		}
	}
}

// A gzip stream with a wrong checksum is refused, even if all its bytes have arrived.
func TestPackedChecksum(t *testing.T) {
	b := packed(t, twoImages())
	b[len(b)-5] ^= 1
	if _, err := idx.DecodeImages(bytes.NewReader(b)); !errors.Is(err, idx.ErrFormat) || !errors.Is(err, gzip.ErrChecksum) {
		t.Errorf("error %v, want gzip.ErrChecksum", err)
	}
}

// write creates a folder with the given files.
func write(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestLoad(t *testing.T) {
	dir := write(t, map[string][]byte{
		"train-images-idx3-ubyte":    twoImages(),
		"train-labels-idx1-ubyte.gz": packed(t, file([]byte{3, 9}, 0x801, 2)),
	})
	set, err := idx.Load(dir, "train", 10)
	if err != nil {
		t.Fatal(err)
	}
	pixels := make([]float32, 3)
	if label := set.Sample(pixels, 1); set.Len() != 2 || label != 9 || pixels[2] != 1 || pixels[0] != 3*float32(1.0/255) {
		t.Errorf("%d images; image 1 has label %d, pixels %v", set.Len(), label, pixels)
	}
}

func TestLoadErrorsNameTheFile(t *testing.T) {
	images, labels := trainImages, trainLabels
	tests := []struct {
		name  string
		files map[string][]byte
		is    error
		want  string
	}{
		{"no images", nil, fs.ErrNotExist, images},
		{"no labels", map[string][]byte{images: twoImages()}, fs.ErrNotExist, labels},
		{"bad images", map[string][]byte{images: {1}, labels: nil}, idx.ErrFormat, images},
		{"bad labels", map[string][]byte{images: twoImages(), labels: {1}}, idx.ErrFormat, labels},
		{"counts", map[string][]byte{images: twoImages(), labels: file([]byte{1}, 0x801, 1)}, idx.ErrFormat, "has 2 images"},
	}
	for _, tt := range tests {
		_, err := idx.Load(write(t, tt.files), "train", 10)
		if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %v naming %q", tt.name, err, tt.is, tt.want)
		}
	}
}

func TestReadReportsTheFileSystem(t *testing.T) {
	if _, err := idx.ReadImages(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want ErrNotExist", err)
	}
	// If the path of the folder leads to a file, the error differs from the error for a missing
	// file in a folder.
	dir := write(t, map[string][]byte{"file": nil})
	if _, err := idx.Load(filepath.Join(dir, "file"), "train", 10); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error %v, want one that is not ErrNotExist", err)
	}
}

func TestImagesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows, cols := rapid.IntRange(1, 6).Draw(t, "rows"), rapid.IntRange(1, 6).Draw(t, "cols")
		count := rapid.IntRange(0, 5).Draw(t, "count")
		pixels := rapid.SliceOfN(rapid.Byte(), count*rows*cols, count*rows*cols).Draw(t, "pixels")
		im, err := idx.DecodeImages(bytes.NewReader(file(pixels, 0x803, uint32(count), uint32(rows), uint32(cols))))
		if err != nil {
			t.Fatal(err)
		}
		if im.Count != count || im.Rows != rows || im.Cols != cols || !bytes.Equal(im.Pixels, pixels) {
			t.Fatalf("read %+v", im)
		}
	})
}

func FuzzDecodeImages(f *testing.F) {
	f.Add(twoImages())
	f.Add(packed(f, twoImages()))
	f.Add(file(nil, 0x803, 1<<31, 1<<31, 1<<31))
	f.Add(file([]byte{1}, 0x801, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		im, err := idx.DecodeImages(bytes.NewReader(b))
		if err == nil && len(im.Pixels) != im.Count*im.Rows*im.Cols {
			t.Fatalf("%d pixels of %d x %d x %d", len(im.Pixels), im.Count, im.Rows, im.Cols)
		}
		if err != nil && !errors.Is(err, idx.ErrFormat) {
			t.Fatalf("error %v is not ErrFormat", err)
		}
	})
}

func FuzzDecodeLabels(f *testing.F) {
	f.Add(file([]byte{1, 2}, 0x801, 2), 10)
	f.Add(packed(f, file([]byte{1, 2}, 0x801, 2)), 2)
	f.Add(twoImages(), 10)
	f.Fuzz(func(t *testing.T, b []byte, classes int) {
		labels, err := idx.DecodeLabels(bytes.NewReader(b), classes)
		for _, l := range labels {
			if int(l) >= classes {
				t.Fatalf("label %d of %d classes", l, classes)
			}
		}
		if err != nil && !errors.Is(err, idx.ErrFormat) {
			t.Fatalf("error %v is not ErrFormat", err)
		}
	})
}
