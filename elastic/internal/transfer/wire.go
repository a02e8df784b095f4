package transfer

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"
	"lukechampine.com/blake3"
	"time"
)

// The limits that a decoder enforces. Memory for more than a line is allocated only as the bytes
// arrive, so a header with false numbers costs no memory.
const (
	maxLine   = 4 << 10  // bytes of a request or of a header, with the newline
	maxName   = 256      // bytes of a joiner's name
	maxChunk  = 64 << 20 // bytes of a chunk
	maxChunks = 1 << 24  // chunks of a snapshot
	maxHeld   = 16       // snapshots that a donor may hold
	maxBatch  = 1 << 16  // updates in one answer
	// maxWaitMS bounds WaitMS of a request, in milliseconds.
	maxWaitMS    = 60_000
	defaultBytes = 1 << 40 // default of Options.MaxBytes
)

// op is the kind of a request.
type op string

// The kinds of requests.
const (
	opWhere    op = "where"    // the donor's step, and the snapshots that it holds
	opTake     op = "take"     // order a snapshot of Step
	opManifest op = "manifest" // the hashes of the snapshot of Step, as soon as the snapshot exists
	opChunks   op = "chunks"   // Count chunks of the snapshot of Step, from First on
	opKeep     op = "keep"     // the snapshot is no longer needed, but the updates after Step are
	opUpdates  op = "updates"  // the updates after Step
	opEnd      op = "end"      // the newcomer needs no more data
)

// request is a request, encoded as one line. Step is the number of a step, which may be a future
// step for opTake and opManifest. First and Count are a range of chunks of the snapshot, for
// opChunks. Requests come from newcomers that may be faulty, so decodeRequest checks all numbers
// against the limits above.
type request struct {
	Do     op     `json:"do"`
	Who    string `json:"who"` // name of the newcomer, whose lease is renewed
	Step   int64  `json:"step,omitempty"`
	First  int    `json:"first,omitempty"`
	Count  int    `json:"count,omitempty"`
	WaitMS int    `json:"wait_ms,omitempty"` // how long the answer may wait for data, in milliseconds
}

// code is the outcome of a request.
type code string

// The outcomes.
const (
	codeOK      code = "ok"
	codePending code = "pending" // the snapshot is ordered, but not ready yet
	codePast    code = "past"    // there is no such snapshot, and its step has passed
	codeFull    code = "full"    // no memory for another snapshot or newcomer
	codeGone    code = "gone"    // some of the updates are missing
)

// header is the first line of an answer.
type header struct {
	Code    code   `json:"code"`
	At      int64  `json:"at"` // the donor's committed step
	Resting bool   `json:"resting,omitempty"`
	Replays bool   `json:"replays,omitempty"`
	Held    []held `json:"held,omitempty"`  // in the answer to where
	Bytes   int64  `json:"bytes,omitempty"` // of the state, as far as known; in a manifest, of the snapshot
	Chunk   int    `json:"chunk,omitempty"` // bytes of a chunk
	Count   int    `json:"count,omitempty"` // number of hashes, chunks or updates that follow
	Sum     sum    `json:"sum,omitzero"`    // in a manifest
}

// held describes a snapshot that a donor holds or has promised to make.
type held struct {
	Step   int64 `json:"step"`
	Behind int64 `json:"behind,omitempty"` // bytes of the updates after Step
}

// frame is the line before the bytes of one update.
type frame struct {
	Step  int64  `json:"step"`
	Bytes int64  `json:"bytes"`
	Sum   uint64 `json:"sum"` // xxHash64 of the bytes
}

// errWire means that a message is malformed.
var errWire = errors.New("malformed message")

// decodeRequest decodes a request and checks that it is within the limits.
func decodeRequest(line []byte) (request, error) {
	var r request
	if len(line) > maxLine {
		return r, fmt.Errorf("%w: a request of %d bytes is too long", errWire, len(line))
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("%w: request: %w", errWire, err)
	}
	if r.Who == "" || len(r.Who) > maxName {
		return r, fmt.Errorf("%w: the name of the newcomer has %d bytes and is empty or too long", errWire, len(r.Who))
	}
	// Requests come from newcomers that may be faulty: every number is bounded before it is used.
	if r.Step < 0 || r.First < 0 || r.Count < 0 || r.First > maxChunks || r.Count > maxChunks || r.WaitMS < 0 || r.WaitMS > maxWaitMS {
		return r, fmt.Errorf("%w: request out of range: %+v", errWire, r)
	}
	return r, nil
}

// wait returns how long the answer may wait for data.
func (r request) wait() time.Duration { return time.Duration(r.WaitMS) * time.Millisecond }

// check returns an error for a header with a number beyond the limits.
func (h header) check(maxBytes int64) error {
	ok := h.At >= 0 && h.Bytes >= 0 && h.Bytes <= maxBytes && h.Chunk >= 0 && h.Chunk <= maxChunk &&
		h.Count >= 0 && h.Count <= maxChunks && len(h.Held) <= maxHeld
	for _, s := range h.Held {
		ok = ok && s.Step >= 0 && s.Behind >= 0
	}
	if !ok {
		return fmt.Errorf("%w: header out of range: %+v", errWire, h)
	}
	return nil
}

// writeLine writes v as a line of JSON.
func writeLine(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("transfer: encode: %w", err)
	}
	_, err = w.Write(append(line, '\n'))
	return err
}

// newLines returns a reader for lines and for the raw bytes between them.
func newLines(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, maxLine) }

// readLine decodes a line of JSON, at most maxLine bytes long, into v.
func readLine(r *bufio.Reader, v any) error {
	line, err := r.ReadSlice('\n')
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return fmt.Errorf("read line: %w", err)
	}
	if err := json.Unmarshal(line, v); err != nil {
		return fmt.Errorf("%w: %w", errWire, err)
	}
	return nil
}

// readHeader reads the header of an answer and checks it.
func readHeader(r *bufio.Reader, maxBytes int64) (header, error) {
	var h header
	if err := readLine(r, &h); err != nil {
		return h, err
	}
	return h, h.check(maxBytes)
}

// readFrame reads one update, at most maxBytes long, and verifies its hash. It uses the memory of
// buf if buf is large enough.
func readFrame(r *bufio.Reader, buf []byte, maxBytes int64) (frame, []byte, error) {
	var f frame
	if err := readLine(r, &f); err != nil {
		return f, nil, err
	}
	if f.Step < 0 || f.Bytes < 0 || f.Bytes > maxBytes {
		return f, nil, fmt.Errorf("%w: update out of range: %+v", errWire, f)
	}
	data, err := readN(r, buf, f.Bytes)
	if err != nil {
		return f, nil, fmt.Errorf("update of step %d: %w", f.Step, err)
	}
	// The hash detects errors of memory and links, not a forgery: a donor can compute the hash of
	// any bytes.
	if sum := xxhash.Sum64(data); sum != f.Sum {
		return f, nil, fmt.Errorf("%w: update of step %d has hash %016x, not %016x", errWire, f.Step, sum, f.Sum)
	}
	return f, data, nil
}

// readN reads n bytes. It uses the memory of buf, and allocates more as the bytes arrive.
func readN(r io.Reader, buf []byte, n int64) ([]byte, error) {
	const step = 1 << 20
	buf = buf[:0]
	for int64(len(buf)) < n {
		if len(buf) == cap(buf) {
			// The buffer at most doubles, so its size stays in proportion to the received bytes.
			more := min(n-int64(len(buf)), int64(max(len(buf), step)))
			buf = append(make([]byte, 0, int64(len(buf))+more), buf...)
		}
		end := min(n, int64(cap(buf)))
		got, err := io.ReadFull(r, buf[len(buf):end])
		buf = buf[:len(buf)+got]
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, err
		}
	}
	return buf, nil
}

// sum is a BLAKE3 hash of 256 bits. It is collision resistant: nobody can find other bytes with the
// same hash.
type sum [32]byte

// sumOf returns the hash of b.
func sumOf(b []byte) sum { return blake3.Sum256(b) }

// MarshalText implements encoding.TextMarshaler, as hexadecimal digits.
func (s sum) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *sum) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(s)) {
		return fmt.Errorf("%w: a hash of %d characters, want %d", errWire, len(text), hex.EncodedLen(len(s)))
	}
	_, err := hex.Decode(s[:], text)
	return err
}

// manifest describes a snapshot by the hashes of its chunks. Manifests with equal sums describe
// equal bytes, so the sum suffices to detect a forged chunk.
type manifest struct {
	step  int64
	bytes int64
	chunk int // bytes of a chunk, except the last
	// hashes has the hash of each chunk, in the order of the chunks.
	hashes []sum
	sum    sum // hash over all fields above
}

// newManifest returns a manifest with its sum.
func newManifest(step, bytes int64, chunk int, hashes []sum) *manifest {
	m := &manifest{step: step, bytes: bytes, chunk: chunk, hashes: hashes}
	b := binary.LittleEndian.AppendUint64(nil, uint64(step))
	b = binary.LittleEndian.AppendUint64(b, uint64(bytes))
	b = binary.LittleEndian.AppendUint64(b, uint64(chunk))
	m.sum = sumOf(append(b, m.encode()...))
	return m
}

// encode returns the hashes as they follow the header.
func (m *manifest) encode() []byte {
	b := make([]byte, 0, len(sum{})*len(m.hashes))
	for _, h := range m.hashes {
		b = append(b, h[:]...)
	}
	return b
}

// length returns the length of chunk i, in bytes.
func (m *manifest) length(i int) int {
	return int(min(int64(m.chunk), m.bytes-int64(i)*int64(m.chunk)))
}

// readManifest reads the hashes that follow the header h, and checks their number and the sum.
func readManifest(r io.Reader, step int64, h header) (*manifest, error) {
	// The check of the header has bounded Bytes and Count. Here the two must agree, because the
	// index of a chunk gives its position in the snapshot.
	if h.Chunk <= 0 || int64(h.Count) != (h.Bytes+int64(h.Chunk)-1)/int64(h.Chunk) {
		return nil, fmt.Errorf("%w: a manifest of %d bytes cannot have %d chunks of %d bytes", errWire, h.Bytes, h.Count, h.Chunk)
	}
	raw, err := readN(r, nil, int64(len(sum{}))*int64(h.Count))
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	hashes := make([]sum, h.Count)
	for i := range hashes {
		raw = raw[copy(hashes[i][:], raw):]
	}
	m := newManifest(step, h.Bytes, h.Chunk, hashes)
	if m.sum != h.Sum {
		return nil, fmt.Errorf("%w: manifest has hash %x, not %x", errWire, m.sum, h.Sum)
	}
	return m, nil
}
