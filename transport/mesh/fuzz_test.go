package mesh

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/internal/shm"
	"github.com/elrun/elrun/transport/internal/direct"
	"github.com/elrun/elrun/transport/internal/wire"
)

// frame returns an encoded frame: the header, then the payload.
func frame(h wire.Header, payload string) []byte {
	var b [wire.HeaderSize]byte
	h.Encode(&b)
	return append(b[:], payload...)
}

// canned is a stream that reads given bytes and then ends.
type canned struct {
	Stream // nil: methods that canned does not define are not called
	io.Reader
}

func (c canned) Read(b []byte) (int, error)     { return c.Reader.Read(b) }
func (canned) Write(b []byte) (int, error)      { return len(b), nil }
func (canned) Close() error                     { return nil }
func (canned) Reset() error                     { return nil }
func (canned) Path() event.Path                 { return event.Path{} }
func (canned) SetWriteDeadline(time.Time) error { return nil }

// Whatever a member writes on its streams, the transport fails with an error or not at
// all, and Close returns.
func FuzzStreams(f *testing.F) {
	data := frame(wire.Header{Kind: wire.Data, Seq: 1, Length: 3}, "abc")
	signal := frame(wire.Header{Kind: wire.Signal, Length: 2}, "hi")
	bye := frame(wire.Header{Kind: wire.Bye}, "")
	cause := transport.EncodeCause(1, io.EOF)
	revoke := frame(wire.Header{Kind: wire.Revoke, Length: uint64(len(cause))}, string(cause))
	f.Add(append(append(data, signal...), bye...), revoke)
	f.Add(data[:70], frame(wire.Header{Kind: wire.Ack}, ""))
	f.Add([]byte("garbage"), []byte("garbage"))
	f.Fuzz(func(t *testing.T, data, urgent []byte) {
		if len(data) >= wire.HeaderSize && binary.LittleEndian.Uint64(data[16:]) > 1<<20 {
			return // allowed, but too slow to try often
		}
		e := begunWith(canned{Reader: bytes.NewReader(data)}, canned{Reader: bytes.NewReader(urgent)})
		if err := e.Recv(t.Context(), 1, transport.Envelope{Seq: 99}, nil); err == nil &&
			!bytes.Contains(data, []byte{99}) {
			t.Error("received what was not sent")
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
}

func FuzzHello(f *testing.F) {
	var good bytes.Buffer
	if err := sendHello(&good, wire.Greeting{Epoch: 1, Job: "job"}); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes())
	f.Add([]byte("garbage"))
	f.Fuzz(func(t *testing.T, in []byte) {
		g, err := readHello(bytes.NewReader(in))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := sendHello(&out, g); err != nil || !bytes.HasPrefix(in, out.Bytes()) {
			t.Errorf("%x became %x, %v", in, out.Bytes(), err)
		}
	})
}

func FuzzShare(f *testing.F) {
	m := shareMessage{kind: kindReady, mask: 5, layout: 7, why: "because"}
	f.Add(m.append(nil))
	f.Add([]byte("garbage"))
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := decodeShare(in)
		if err != nil {
			return
		}
		if out := m.append(nil); !bytes.Equal(in, out) {
			t.Errorf("%x became %x", in, out)
		}
	})
}

func FuzzControl(f *testing.F) {
	f.Add([]byte("\x03\x00\x00\x00abc\xff\xff\xff\xff\x00\x00\x00\x00"))
	f.Add([]byte("\xfe\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var out []byte
		err := readMessages(bytes.NewReader(in), func() {
			out = binary.LittleEndian.AppendUint32(out, ackMark)
		}, func(msg []byte) {
			out = binary.LittleEndian.AppendUint32(out, uint32(len(msg)))
			out = append(out, msg...)
		})
		if err == nil || !bytes.HasPrefix(in, out) {
			t.Errorf("%x became %x, %v", in, out, err)
		}
	})
}

// readRequest returns as many bytes as the length before them says, and refuses lengths above the limit.
func FuzzRequest(f *testing.F) {
	f.Add([]byte("\x03\x00\x00\x00abc"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		b, err := readRequest(bytes.NewReader(in))
		if err != nil {
			return
		}
		again := append(binary.LittleEndian.AppendUint32(nil, uint32(len(b))), b...)
		if len(b) > elastic.MaxRequest || !bytes.HasPrefix(in, again) {
			t.Errorf("%x became %x", in, b)
		}
	})
}

// Whatever a peer sends as an answer, Read returns the bytes of its pieces, and returns io.EOF only at
// the empty piece that marks the end.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("\x03\x00\x00\x00abc\x01\x00\x00\x00d\x00\x00\x00\x00"))
	f.Add([]byte("\x03\x00\x00\x00ab"))
	f.Add([]byte("\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, in []byte) {
		a := &answer{ctx: t.Context(), s: canned{Reader: bytes.NewReader(in)}, stop: func() bool { return true }}
		got, err := io.ReadAll(a)
		var out []byte
		rest := in
		for len(rest) >= 4 {
			n := int(binary.LittleEndian.Uint32(rest))
			if n == 0 || n > pieceSize {
				break
			}
			rest = rest[4:]
			n = min(n, len(rest))
			out, rest = append(out, rest[:n]...), rest[n:]
		}
		ended := len(rest) >= 4 && binary.LittleEndian.Uint32(rest) == 0
		if !bytes.Equal(got, out) || (err == nil) != ended {
			t.Errorf("%x became %x, %v; want %x, ended %v", in, got, err, out, ended)
		}
	})
}

// The limits of packages wire and direct fit the limits of the packages that use them.
func TestWireFits(t *testing.T) {
	if got := wire.MaxPayload(wire.Signal); got != transport.MaxSignal {
		t.Errorf("signals of %d bytes, the transport allows %d", got, transport.MaxSignal)
	}
	if got := wire.MaxPayload(wire.Revoke); got != transport.MaxSignal {
		t.Errorf("causes of %d bytes, want %d", got, transport.MaxSignal)
	}
	if got := wire.MaxPayload(wire.Probe); got != transport.MaxProbe {
		t.Errorf("probes of %d bytes, want %d", got, transport.MaxProbe)
	}
	if wire.CallSize != transport.CallSize {
		t.Errorf("calls of %d bytes, the collectives have %d", wire.CallSize, transport.CallSize)
	}
	if got := uint64(shareFixed + maxWhy); got > wire.MaxPayload(wire.Share) {
		t.Errorf("a message about sharing can have %d bytes, a frame %d", got, wire.MaxPayload(wire.Share))
	}
	if most := 1 + 2*shm.MaxRanks; direct.MaxFiles != 0 && most > direct.MaxFiles {
		t.Errorf("%d files can come at once, direct sends %d", most, direct.MaxFiles)
	}
}
