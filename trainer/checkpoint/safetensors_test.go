package checkpoint

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func twoTensors() []Tensor {
	return []Tensor{
		{"layer0.weight", []int{2, 3}, []float32{1, 2, 3, 4, 5, float32(math.Inf(1))}, nil},
		{"layer0.bias", []int{3}, []float32{-1, 0, 0.5}, nil},
		{"scale", []int{}, []float32{7}, nil},
		{"none", []int{0, 4}, []float32{}, nil},
	}
}

func TestSafetensorsThereAndBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.safetensors")
	for _, metadata := range []map[string]string{{"step": "12", "ä\"\n": "<&>"}, {}} {
		if err := WriteSafetensors(path, twoTensors(), metadata); err != nil {
			t.Fatal(err)
		}
		got, gotMetadata, err := ReadSafetensors(path)
		if err != nil || !reflect.DeepEqual(got, twoTensors()) || !reflect.DeepEqual(gotMetadata, metadata) {
			t.Errorf("read %v with %v, error %v", got, gotMetadata, err)
		}
	}
	if entries := names(t, filepath.Dir(path)); len(entries) != 1 {
		t.Errorf("files %v, want one", entries)
	}
}

// The bytes of a written file, decoded by hand, agree with the description of the format.
func TestSafetensorsFormat(t *testing.T) {
	var b bytes.Buffer
	if err := encodeTensors(&b, twoTensors(), map[string]string{"a": "b"}); err != nil {
		t.Fatal(err)
	}
	length := binary.LittleEndian.Uint64(b.Bytes())
	header, data := b.Bytes()[8:8+length], b.Bytes()[8+length:]
	want := `{"__metadata__":{"a":"b"},` +
		`"layer0.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},` +
		`"layer0.bias":{"dtype":"F32","shape":[3],"data_offsets":[24,36]},` +
		`"scale":{"dtype":"F32","shape":[],"data_offsets":[36,40]},` +
		`"none":{"dtype":"F32","shape":[0,4],"data_offsets":[40,40]}}`
	if got := strings.TrimRight(string(header), " "); got != want || length%8 != 0 || length >= uint64(len(want)+8) {
		t.Errorf("header of %d bytes:\n%s\nwant\n%s", length, got, want)
	}
	if len(data) != 40 || binary.LittleEndian.Uint32(data[24:]) != math.Float32bits(-1) {
		t.Errorf("data % x", data)
	}
}

func TestSafetensorsRefusesToWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x")
	one := []float32{1}
	for want, tensors := range map[string][]Tensor{
		`"a": want valid UTF-8`:                 {{"a", []int{1}, one, nil}, {"a", []int{1}, one, nil}},
		`"__metadata__": want valid UTF-8`:      {{"__metadata__", []int{1}, one, nil}},
		`"\xff": want valid UTF-8`:              {{"\xff", []int{1}, one, nil}},
		"1 elements do not match the shape [2]": {{"a", []int{2}, one, nil}},
		"shape [-1 -1]":                         {{"a", []int{-1, -1}, one, nil}},
		"shape [4294967296 429496":              {{"a", []int{1 << 32, 1 << 32}, nil, nil}},
	} {
		if err := WriteSafetensors(path, tensors, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file was left: %v", err)
	}
	if err := WriteSafetensors(filepath.Join(path, "missing", "x"), nil, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing folder: %v", err)
	}
}

// file returns a file with the given header and the given number of data bytes.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func TestSafetensorsRefusesToRead(t *testing.T) {
	a := `"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}`
	for want, b := range map[string][]byte{
		"too few":                   {1, 2, 3},
		"claims a header of":        binary.LittleEndian.AppendUint64(nil, 1),
		"a header of 1844674407":    binary.LittleEndian.AppendUint64(nil, math.MaxUint64),
		"does not begin with {":     file(" {}", 0),
		"is not JSON":               file("{", 0),
		`"a" occurs twice`:          file("{"+a+","+a+"}", 8),
		"1 bytes of data":           file("{}", 1),
		"7 bytes of data":           file("{"+a+"}", 7),
		`type "F64"`:                file(`{"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}`, 8),
		"from byte 8 on":            file(`{`+a+`,"b":{"dtype":"F32","shape":[1],"data_offsets":[12,16]}}`, 16),
		"the offsets [4 12]":        file(`{`+a+`,"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, 12),
		"of the shape [3]":          file(`{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}`, 8),
		`"shape": -1 is not`:        file(`{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,8]}}`, 8),
		"shape [2147483648 2147483": file(`{"a":{"dtype":"F32","shape":[2147483648,2147483648,4],"data_offsets":[0,0]}}`, 0),
		`"a": want an object`:       file(`{"a":3}`, 0),
		`"__metadata__": "a": want`: file(`{"__metadata__":{"a":3}}`, 0),
	} {
		if _, _, err := decodeTensors(bytes.NewReader(b), int64(len(b))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	if _, _, err := ReadSafetensors(t.TempDir()); !errors.Is(err, ErrDamaged) {
		t.Errorf("a folder: %v", err)
	}
	if _, _, err := ReadSafetensors(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestSafetensorsAnyTensors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tensors []Tensor
		for name := range rapid.MapOfN(rapid.StringMatching(`[a-z0-9."\\ ]{0,9}`), rapid.Bool(), 0, 5).Draw(t, "names") {
			shape := rapid.SliceOfN(rapid.IntRange(0, 4), 0, 3).Draw(t, "shape")
			n, _ := elements(shape)
			data := make([]float32, n)
			for i := range data {
				data[i] = float32(i) - 1.5
			}
			tensors = append(tensors, Tensor{name, append([]int{}, shape...), data, nil})
		}
		var b bytes.Buffer
		if err := encodeTensors(&b, tensors, nil); err != nil {
			t.Fatal(err)
		}
		got, _, err := decodeTensors(bytes.NewReader(b.Bytes()), int64(b.Len()))
		if err != nil || len(got) != len(tensors) {
			t.Fatalf("%d tensors, error %v; want %d", len(got), err, len(tensors))
		}
		for _, want := range tensors { // empty tensors may be in another order
			found := false
			for _, g := range got {
				found = found || reflect.DeepEqual(g, want)
			}
			if !found {
				t.Fatalf("%+v is not in %+v", want, got)
			}
		}
	})
}

func FuzzDecodeTensors(f *testing.F) {
	var b bytes.Buffer
	if err := encodeTensors(&b, twoTensors(), map[string]string{"a": "b"}); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(file("{}", 0))
	f.Add(file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8))
	for _, headers := range headersRefused() {
		for _, header := range headers {
			f.Add(file(header, 8))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		tensors, metadata, err := decodeTensors(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		checkAccepted(t, b, len(tensors))
		total := 0
		for _, tensor := range tensors {
			total += 4 * len(tensor.Data)
		}
		if total > len(b) {
			t.Fatalf("%d bytes of data from %d", total, len(b))
		}
		// An accepted file can be written again with the same content.
		var again bytes.Buffer
		if err := encodeTensors(&again, tensors, metadata); err != nil {
			t.Fatal(err)
		}
		other, _, err := decodeTensors(bytes.NewReader(again.Bytes()), int64(again.Len()))
		if err != nil || len(other) != len(tensors) {
			t.Fatalf("%d tensors come back as %d, error %v", len(tensors), len(other), err)
		}
	})
}
