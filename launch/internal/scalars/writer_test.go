package scalars

import (
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// crc is CRC-32C bit by bit, with the mask of the format.
func crc(data []byte) uint32 {
	c := ^uint32(0)
	for _, b := range data {
		c ^= uint32(b)
		for range 8 {
			if c&1 != 0 {
				c = c>>1 ^ 0x82f63b78
			} else {
				c >>= 1
			}
		}
	}
	c = ^c
	return (c>>15 | c<<17) + 0xa282ead8
}

// number reads n bytes, the lowest first.
func number(b []byte, n int) (x uint64) {
	for i := range n {
		x |= uint64(b[i]) << (8 * i)
	}
	return x
}

// fields reads a message of protocol buffers: numbers as uint64, and bytes, by the number of the field.
func fields(t *testing.T, b []byte) map[uint64]any {
	t.Helper()
	out := map[uint64]any{}
	varint := func() (x uint64) {
		for shift := 0; ; shift += 7 {
			c := b[0]
			b = b[1:]
			x |= uint64(c&0x7f) << shift
			if c < 0x80 {
				return x
			}
		}
	}
	for len(b) > 0 {
		tag := varint()
		switch tag & 7 {
		case 0:
			out[tag>>3] = varint()
		case 1:
			out[tag>>3], b = number(b, 8), b[8:]
		case 2:
			n := varint()
			out[tag>>3], b = b[:n], b[n:]
		case 5:
			out[tag>>3], b = number(b, 4), b[4:]
		default:
			t.Fatalf("wire type %d", tag&7)
		}
	}
	return out
}

// point is a figure as the file for TensorBoard has it.
type point struct {
	step  uint64
	time  float64
	name  string
	value float32
}

// read reads a file for TensorBoard, and checks every checksum.
func read(t *testing.T, path string) (all []point) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for first := true; len(b) > 0; first = false {
		n := number(b, 8)
		data := b[12:][:n]
		if uint32(number(b[8:], 4)) != crc(b[:8]) || uint32(number(b[12+n:], 4)) != crc(data) {
			t.Fatal("wrong checksum")
		}
		b = b[16+n:]
		event := fields(t, data)
		if first {
			if string(event[3].([]byte)) != "brain.Event:2" {
				t.Errorf("the first record is %v", event)
			}
			continue
		}
		value := fields(t, fields(t, event[5].([]byte))[1].([]byte))
		all = append(all, point{event[2].(uint64), math.Float64frombits(event[1].(uint64)), string(value[1].([]byte)), math.Float32frombits(uint32(value[2].(uint64)))})
	}
	return all
}

func TestWriter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	at := time.Unix(1.8e9, 5e8)
	w, err := Open(dir, at)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []Row{
		{at, 1, map[string]float64{"loss": 0.5, "learning_rate": 0.1}},
		{at.Add(time.Second), 300, map[string]float64{"loss": 0.25, "a, \"quoted\" name": math.Inf(1)}},
	} {
		if err := w.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*tfevents*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v", files, err)
	}
	want := []point{{1, 1800000000.5, "learning_rate", 0.1}, {1, 1800000000.5, "loss", 0.5},
		{300, 1800000001.5, "a, \"quoted\" name", float32(math.Inf(1))}, {300, 1800000001.5, "loss", 0.25}}
	if got := read(t, files[0]); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	text, err := os.ReadFile(filepath.Join(dir, "steps.csv"))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if want := [][]string{{"step", "time", "learning_rate", "loss", "a, \"quoted\" name"},
		{"1", "2027-01-15T08:00:00.500Z", "0.1", "0.5", ""}, {"300", "2027-01-15T08:00:01.500Z", "", "0.25", "+Inf"}}; err != nil || !reflect.DeepEqual(rows, want) {
		t.Errorf("got  %v, %v\nwant %v", rows, err, want)
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("%d files, want 2", len(left))
	}
	// The table of this run stays when another one begins.
	if w, err = Open(dir, at.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	tables, _ := filepath.Glob(filepath.Join(dir, "steps-*.csv"))
	if len(tables) != 1 {
		t.Fatalf("tables of earlier runs: %q", tables)
	}
	if kept, err := os.ReadFile(tables[0]); err != nil || string(kept) != string(text) {
		t.Errorf("the table of an earlier run is %q, %v", kept, err)
	}
}

// A program that makes new names all the time does not make the table grow without bound.
func TestManyNames(t *testing.T) {
	dir := t.TempDir()
	w, err := Open(dir, time.Unix(1.8e9, 0))
	if err != nil {
		t.Fatal(err)
	}
	for n := range int64(maxColumns + 10) {
		if err := w.Add(Row{time.Unix(1.8e9+n, 0), n, map[string]float64{fmt.Sprintf("n%d", n): 1}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "steps.csv"))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err != nil || len(rows) != maxColumns+11 || len(rows[0]) != maxColumns {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}

// A folder that cannot be made is an error.
func TestOpenFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(file, time.Now()); err == nil {
		t.Error("opened a file as a folder")
	}
}
