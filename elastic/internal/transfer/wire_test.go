package transfer

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/cespare/xxhash/v2"
	"pgregory.net/rapid"
)

func TestDecodeRequest(t *testing.T) {
	good := request{Do: opChunks, Who: "me", Step: 5, First: 3, Count: 2, WaitMS: 10}
	line, _ := json.Marshal(good)
	if r, err := decodeRequest(line); err != nil || r != good {
		t.Errorf("%+v, %v", r, err)
	}
	for _, bad := range []string{
		"", "{", `{"do":"where"}`, `{"who":"a","step":-1}`, `{"who":"a","first":-1}`, `{"who":"a","count":99999999}`,
		`{"who":"a","wait_ms":99999999}`, `{"who":"` + strings.Repeat("x", maxName+1) + `"}`, strings.Repeat(" ", maxLine+1),
	} {
		if _, err := decodeRequest([]byte(bad)); !errors.Is(err, errWire) {
			t.Errorf("%.40q: error %v", bad, err)
		}
	}
}

func TestReadLine(t *testing.T) {
	for in, want := range map[string]error{
		`{"code":"ok"}`:            io.ErrUnexpectedEOF,
		"":                         io.ErrUnexpectedEOF,
		"x\n":                      errWire,
		`{"code":"ok","at":-1}\n`:  nil,
		strings.Repeat("x", 1<<16): nil,
	} {
		if _, err := readHeader(newLines(strings.NewReader(in)), 10); err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("%.40q: error %v", in, err)
		}
	}
}

// A false length in a header makes readN allocate no more than the data needs.
func TestReadNTakesMemoryAsItComes(t *testing.T) {
	allocated := testing.AllocsPerRun(1, func() {
		if _, err := readN(strings.NewReader("abc"), nil, 1<<40); err != io.ErrUnexpectedEOF {
			t.Errorf("error %v", err)
		}
	})
	if allocated > 10 {
		t.Errorf("%v allocations", allocated)
	}
}

func TestReadN(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := bytes.Repeat([]byte("elrun"), rapid.IntRange(0, 600_000).Draw(t, "fives"))
		buf := make([]byte, rapid.IntRange(0, 1000).Draw(t, "buf"))
		got, err := readN(iotest.HalfReader(bytes.NewReader(want)), buf, int64(len(want)))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes of %d, %v", len(got), len(want), err)
		}
	})
}

// encodeManifest returns the answer to a request for m.
func encodeManifest(m *manifest) []byte {
	var b bytes.Buffer
	_ = writeLine(&b, header{Code: codeOK, Bytes: m.bytes, Chunk: m.chunk, Count: len(m.hashes), Sum: m.sum})
	b.Write(m.encode())
	return b.Bytes()
}

// decodeManifest is the inverse of encodeManifest.
func decodeManifest(b []byte, step int64) (*manifest, error) {
	r := newLines(bytes.NewReader(b))
	h, err := readHeader(r, 1<<30)
	if err != nil {
		return nil, err
	}
	return readManifest(r, step, h)
}

func TestManifest(t *testing.T) {
	m := newManifest(7, 25, 10, []sum{{1}, {2}, {3}})
	if m.length(0) != 10 || m.length(2) != 5 {
		t.Errorf("lengths %d, %d", m.length(0), m.length(2))
	}
	enc := encodeManifest(m)
	if got, err := decodeManifest(enc, 7); err != nil || !reflect.DeepEqual(got, m) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := decodeManifest(enc, 8); err == nil {
		t.Error("a manifest of another step was taken")
	}
	for i := range enc {
		bad := bytes.Clone(enc)
		bad[i] ^= 1
		if got, err := decodeManifest(bad, 7); err == nil && !reflect.DeepEqual(got, m) {
			t.Errorf("byte %d changed, and %+v was taken", i, got)
		}
	}
	for _, h := range []header{{Bytes: 1}, {Chunk: 1, Count: 1}, {Bytes: 5, Chunk: 2, Count: 2}, {Bytes: 5, Chunk: 2, Count: 4}} {
		if _, err := readManifest(strings.NewReader(strings.Repeat("x", 100)), 7, h); !errors.Is(err, errWire) {
			t.Errorf("%+v: error %v", h, err)
		}
	}
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add([]byte(`{"do":"take","who":"a","step":3}`))
	f.Add([]byte(`{"do":"chunks","who":"a","step":3,"first":1,"count":2}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := decodeRequest(line)
		if err != nil {
			return
		}
		again, _ := json.Marshal(r)
		if len(again) > maxLine {
			return // escaping has made the line longer than the limit
		}
		if r2, err := decodeRequest(again); err != nil || r2 != r {
			t.Errorf("%+v became %+v, %v", r, r2, err)
		}
	})
}

func FuzzManifest(f *testing.F) {
	f.Add(encodeManifest(newManifest(7, 25, 10, []sum{{1}, {2}, {3}})))
	f.Add(encodeManifest(newManifest(7, 0, 10, nil)))
	f.Add([]byte(`{"code":"ok","at":3,"held":[{"step":4}]}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeManifest(b, 7)
		if err != nil {
			return
		}
		var total int64
		for i := range m.hashes {
			if m.length(i) <= 0 || m.length(i) > m.chunk {
				t.Fatalf("chunk %d of %+v has %d bytes", i, m, m.length(i))
			}
			total += int64(m.length(i))
		}
		if total != m.bytes {
			t.Errorf("chunks of %d bytes, not %d", total, m.bytes)
		}
	})
}

func FuzzFrame(f *testing.F) {
	u := &slabs{size: 10}
	_, _ = u.Write([]byte("an update of some bytes"))
	var b bytes.Buffer
	_ = sendUpdate(&b, 9, u)
	f.Add(b.Bytes())
	f.Add([]byte(`{"step":1,"bytes":99999999}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, data, err := readFrame(newLines(bytes.NewReader(b)), nil, 1<<20)
		if err == nil && (int64(len(data)) != fr.Bytes || xxhash.Sum64(data) != fr.Sum) {
			t.Errorf("%+v: %d bytes", fr, len(data))
		}
	})
}

// For any request a donor answers or returns an error, and does not panic.
func FuzzServe(f *testing.F) {
	for _, do := range []op{opWhere, opTake, opManifest, opChunks, opKeep, opUpdates, opEnd, "?"} {
		line, _ := json.Marshal(request{Do: do, Who: "a", Step: 3, First: 1, Count: 2})
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		d := readyDonor(t, 3)
		defer d.Close()
		if r, err := decodeRequest(line); err != nil || r.WaitMS > 0 {
			return // the donor would wait
		}
		var out bytes.Buffer
		if err := d.Serve(t.Context(), line, &out); err != nil {
			return
		}
		if _, err := readHeader(newLines(&out), 1<<30); err != nil {
			t.Errorf("%q: an answer that cannot be read: %v", line, err)
		}
	})
}
