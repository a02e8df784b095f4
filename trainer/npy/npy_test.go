package npy_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/trainer/npy"
	"pgregory.net/rapid"
)

// file returns a file of version 1, as numpy.save writes it, with the given header and elements.
func file(dict string, elements []byte) []byte {
	header := dict + strings.Repeat(" ", 63-(10+len(dict))%64) + "\n"
	b := append([]byte("\x93NUMPY\x01\x00"), byte(len(header)), byte(len(header)>>8))
	return slices.Concat(b, []byte(header), elements)
}

// dict returns the header of an array in C order.
func dict(descr, shape string) string {
	return fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr, shape)
}

// write writes b to a file and returns its path.
func write(t testing.TB, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// six returns the bytes of a slice of numbers, little-endian.
func six(t testing.TB, elements any) []byte {
	t.Helper()
	b, err := binary.Append(nil, binary.LittleEndian, elements)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Elements of all types can be read, with their extreme values.
func TestElements(t *testing.T) {
	const max64 = 1 << 63
	for descr, tt := range map[string]struct {
		elements any
		want     []float32
	}{
		"|b1": {[]uint8{0, 1, 1, 0}, []float32{0, 1, 1, 0}},
		"|u1": {[]uint8{0, 1, 128, 255}, []float32{0, 1, 128, 255}},
		"|i1": {[]int8{0, 1, -1, -128}, []float32{0, 1, -1, -128}},
		"<u2": {[]uint16{0, 1, 256, 65535}, []float32{0, 1, 256, 65535}},
		"<i2": {[]int16{0, -1, 256, -32768}, []float32{0, -1, 256, -32768}},
		"<u4": {[]uint32{0, 1, 1 << 31, 77}, []float32{0, 1, 1 << 31, 77}},
		"<i4": {[]int32{0, -1, math.MinInt32, 77}, []float32{0, -1, math.MinInt32, 77}},
		"<u8": {[]uint64{0, 1, max64, 77}, []float32{0, 1, max64, 77}},
		"<i8": {[]int64{0, -1, math.MinInt64, 1<<24 + 1}, []float32{0, -1, -max64, 1 << 24}},
		"<f2": {[]dtype.Float16{0, 0x3c00, 0xc000, 0x7c00}, []float32{0, 1, -2, float32(math.Inf(1))}},
		"<f4": {[]float32{0, 1.5, -2, math.MaxFloat32}, []float32{0, 1.5, -2, math.MaxFloat32}},
		"<f8": {[]float64{0, 1.5, 0.1, math.Inf(-1)}, []float32{0, 1.5, 0.1, float32(math.Inf(-1))}},
	} {
		a, err := npy.OpenArray(write(t, "a.npy", file(dict(descr, "(2, 2)"), six(t, tt.elements))))
		if err != nil {
			t.Errorf("%s: %v", descr, err)
			continue
		}
		got := make([]float32, 4)
		err = errors.Join(a.Row(got[:2], 0), a.Row(got[2:], 1), a.Close())
		if err != nil || !slices.Equal(got, tt.want) || a.Type != descr || a.Len() != 2 || a.Size() != 2 || !slices.Equal(a.Shape, []int{2, 2}) {
			t.Errorf("%s: %v, error %v, %+v; want %v", descr, got, err, a, tt.want)
		}
	}
}

// Row returns the elements that were written to the file. Rows may be longer than the buffer of
// Row.
func TestRowsAreTheArray(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rows, cols := rapid.IntRange(0, 4).Draw(rt, "rows"), rapid.IntRange(1, 800).Draw(rt, "columns")
		values := rapid.SliceOfN(rapid.Float32(), rows*cols, rows*cols).Draw(rt, "values")
		a, err := npy.OpenArray(write(t, "a.npy", file(dict("<f4", fmt.Sprintf("(%d, %d)", rows, cols)), six(t, values))))
		if err != nil {
			rt.Fatal(err)
		}
		got := make([]float32, cols+1)
		for i := range rows {
			if err := a.Row(got, i); err != nil || !slices.Equal(got[:cols], values[i*cols:][:cols]) {
				rt.Fatalf("row %d: %v, error %v", i, got[:cols], err)
			}
		}
		if err := a.Close(); err != nil || a.Len() != rows {
			rt.Fatalf("%d rows, error %v", a.Len(), err)
		}
	})
}

// Versions 2 and 3 have a longer length field. Keys may be in any order, quotes may be single or
// double, and the integers of Python 2 end with L.
func TestVersions(t *testing.T) {
	text := `{"shape": (2L,3L) , 'fortran_order':False,"descr":"|u1"}` + "\n"
	for version := byte(1); version <= 3; version++ {
		b := append([]byte("\x93NUMPY"), version, 0, byte(len(text)), 0)
		if version > 1 {
			b = append(b, 0, 0)
		}
		b = append(append(b, text...), 0, 1, 2, 3, 4, 5)
		a, err := npy.OpenArray(write(t, "a.npy", b))
		if err != nil {
			t.Errorf("version %d: %v", version, err)
			continue
		}
		row := make([]float32, 3)
		if err := errors.Join(a.Row(row, 1), a.Close()); err != nil || !slices.Equal(row, []float32{3, 4, 5}) {
			t.Errorf("version %d: row %v, error %v", version, row, err)
		}
	}
}

// An unsupported file is refused with an error that has the path and advice.
func TestRefused(t *testing.T) {
	good := file(dict("|u1", "(2, 3)"), make([]byte, 6))
	changed := func(old, new string) []byte {
		return file(strings.Replace(dict("|u1", "(2, 3)"), old, new, 1), make([]byte, 6))
	}
	for name, tt := range map[string]struct {
		b    []byte
		want string
	}{
		"empty":        {nil, `begins with ""`},
		"text":         {[]byte("1,2,3\n4,5,6"), "write it with numpy.save"},
		"npz":          {[]byte("PK\x03\x04....."), "numpy.savez"},
		"gzip":         {[]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0}, "gunzip"},
		"magic only":   {good[:6], "ends after 6 bytes"},
		"version":      {append([]byte("\x93NUMPY\x04\x00"), good[8:]...), "version 4.0"},
		"half":         {good[:40], "ends before its elements"},
		"no length":    {[]byte("\x93NUMPY\x02\x00\x01"), "ends before its elements"},
		"huge header":  {[]byte("\x93NUMPY\x02\x00\xff\xff\xff\xff"), "claims 4294967295 bytes, want at most"},
		"truncated":    {good[:len(good)-1], "it has 5 bytes of elements, but the shape [2 3] of |u1 needs 6"},
		"trailing":     {append(slices.Clone(good), 1), "it has 7 bytes of elements"},
		"fortran":      {changed("False", "True"), "numpy.ascontiguousarray"},
		"big-endian":   {changed("|u1", ">f4"), "save a.astype('<f4')"},
		"text type":    {changed("|u1", "<U7"), `type "<U7"`},
		"objects":      {changed("|u1", "|O"), `type "|O"`},
		"complex":      {changed("|u1", "<c8"), `type "<c8"`},
		"fields":       {changed("'|u1'", "[('x', '<f4')]"), "save each field"},
		"scalar":       {changed("(2, 3)", "()"), "single number"},
		"no inputs":    {changed("(2, 3)", "(2, 0)"), "without elements"},
		"huge":         {changed("(2, 3)", "(4294967296, 4294967296)"), "larger than any file"},
		"huge row":     {changed("(2, 3)", "(0, 4294967296, 4294967296)"), "larger than any file"},
		"huge size":    {changed("(2, 3)", "(99999999999999999999, 1)"), "too large"},
		"negative":     {changed("(2, 3)", "(-2, 3)"), "want a size"},
		"no tuple":     {changed("(2, 3)", "6"), `want '('`},
		"open tuple":   {changed("(2, 3)", "(2, 3"), "want"},
		"dimensions":   {changed("(2, 3)", "("+strings.Repeat("1,", 100)+")"), "more than 64 dimensions"},
		"not a bool":   {changed("False", "0"), "want True or False"},
		"unknown key":  {changed("descr", "desc"), `unknown key "desc"`},
		"twice":        {changed("'shape'", "'descr'"), "twice"},
		"missing key":  {changed("'fortran_order': False,", ""), "2 keys"},
		"no dict":      {changed("{", "["), `want '{'`},
		"open dict":    {changed("}", ""), "want"},
		"open string":  {changed("'descr", "descr"), `want '\''`},
		"no string":    {file("{'descr", nil), "has no closing quote"},
		"after":        {changed("}", "} x"), "after the dictionary"},
		"empty header": {file("", nil), "want '{'"},
	} {
		path := write(t, "bad.npy", tt.b)
		_, err := npy.OpenArray(path)
		if !errors.Is(err, npy.ErrFormat) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: error %v, want ErrFormat with %q and the path", name, err, tt.want)
		}
	}
	if _, err := npy.OpenArray(filepath.Join(t.TempDir(), "none.npy")); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "none.npy") {
		t.Errorf("missing: error %v", err)
	}
}

// FuzzOpenArray checks that a file is either refused with an error that has its name, or all its rows can be read.
func FuzzOpenArray(f *testing.F) {
	f.Add(file(dict("|u1", "(2, 3)"), make([]byte, 6)))
	f.Add(file(dict("<f8", "(3,)"), make([]byte, 24)))
	f.Add(file(dict("<f2", "(0, 7)"), nil))
	f.Add(file(dict("<i4", "(4294967296, 4294967296)"), nil))
	f.Add(file("{'descr': [('a', '<f4')], 'fortran_order': True, 'shape': (1L,)}", nil))
	f.Add([]byte("\x93NUMPY\x02\x00\xff\xff\x00\x00{"))
	f.Add([]byte("PK\x03\x04"))
	path := filepath.Join(f.TempDir(), "fuzz.npy")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := npy.OpenArray(path)
		if err != nil {
			if !errors.Is(err, npy.ErrFormat) || !strings.Contains(err.Error(), path) {
				t.Fatalf("error %v, want ErrFormat with the path", err)
			}
			return
		}
		row := make([]float32, a.Size())
		for i := range a.Len() {
			if err := a.Row(row, i); err != nil {
				t.Fatal(err)
			}
		}
		if a.Len()*a.Size() > len(b) || !bytes.Contains(b, []byte(a.Type)) {
			t.Fatalf("%v of %s in %d bytes", a.Shape, a.Type, len(b))
		}
		if err := a.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
