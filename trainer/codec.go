package trainer

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/elrun/elrun/internal/kernel"
	"github.com/elrun/elrun/trainer/internal/growth"
)

// States and updates have the same format, with little-endian numbers:
//
//	8 bytes   magic: state or update, and the version
//	uint32    length of the header in bytes
//	          the header as JSON
//	          vectors of float32. A state has the parameters, then the optimizer
//	          state, slot by slot for each parameter; an update has the mean
//	          gradient that the optimizer was given
//	          in a state, the bytes of the Updater, if the model has one
//
// Nothing follows.
const (
	stateMagic  = "elstate1"
	updateMagic = "elupdat1"
)

// maxHeader bounds the length of a header, in bytes. The header of a thousand members is shorter.
// The input may come from another peer or a file, so decodeHeader does not trust the length that it
// claims.
const maxHeader = 16 << 20

// header is the part of a state or an update before the vectors.
type header struct {
	Outcome   outcome
	Exponents []int8 `json:",omitempty"` // of the scale of the next step; exact mode only
	Digest    uint64 `json:",omitempty"` // of the parameters; only in a state
	// Growth is the growth of the batch up to the step of Outcome; nil if the batch does not grow.
	Growth *growth.State `json:",omitempty"`
	Sizes  []int         // elements of each parameter
	Slots  int           // optimizer vectors for each parameter
	// Updater is set if the model has an Updater, whose state follows the vectors of a state: its
	// length, and its xxHash64.
	Updater      bool   `json:",omitempty"`
	UpdaterBytes int64  `json:",omitempty"`
	UpdaterSum   uint64 `json:",omitempty"`
}

// fits returns an error unless the vectors that h describes match the vectors of this job. want is
// the header of this job.
func (h header) fits(want header) error {
	switch {
	case !slices.Equal(h.Sizes, want.Sizes):
		return fmt.Errorf("its parameters have %v elements, this job's have %v", h.Sizes, want.Sizes)
	case h.Slots != want.Slots:
		return fmt.Errorf("its optimizer keeps %d vectors for each parameter, this job's keeps %d", h.Slots, want.Slots)
	case h.UpdaterBytes < 0 || h.UpdaterBytes > maxUpdater:
		return fmt.Errorf("its state of the Updater has %d bytes, want 0 to %d", h.UpdaterBytes, int64(maxUpdater))
	case h.Updater != want.Updater:
		return errors.New("one of it and this job updates parameters by an optimizer of elrun, and the other by an Updater of the program")
	case len(h.Exponents) != len(want.Exponents):
		return fmt.Errorf("it has %d exponents of exact mode, this job has %d", len(h.Exponents), len(want.Exponents))
	}
	return nil
}

// encode writes a state or an update to w. It allocates memory only for the header: it passes the
// memory of the vectors to w without a copy, so w must not keep it.
func encode(w io.Writer, magic string, h header, vectors [][]float32) error {
	text, err := json.Marshal(h)
	if err != nil {
		return fmt.Errorf("encode header: %w", err)
	}
	head := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(text)))
	if _, err := w.Write(append(head, text...)); err != nil {
		return err
	}
	for _, v := range vectors {
		if _, err := w.Write(kernel.Bytes(v)); err != nil {
			return err
		}
	}
	return nil
}

// decodeHeader reads everything before the vectors. It allocates memory only for bytes that have
// arrived, whatever length the input claims.
func decodeHeader(r io.Reader, magic string) (header, error) {
	head := make([]byte, len(magic)+4)
	if _, err := io.ReadFull(r, head); err != nil {
		return header{}, fmt.Errorf("read its beginning: %w", whole(err))
	}
	if got := string(head[:len(magic)]); got != magic {
		return header{}, fmt.Errorf("it begins with %q, want %q", got, magic)
	}
	n := binary.LittleEndian.Uint32(head[len(magic):])
	if n > maxHeader {
		return header{}, fmt.Errorf("a header of %d bytes, at most %d", n, maxHeader)
	}
	// Use a growing buffer, because the claimed length is not trusted.
	var text bytes.Buffer
	if _, err := io.CopyN(&text, r, int64(n)); err != nil {
		return header{}, fmt.Errorf("read the header: %w", whole(err))
	}
	var h header
	if err := json.Unmarshal(text.Bytes(), &h); err != nil {
		return header{}, fmt.Errorf("header: %w", err)
	}
	return h, nil
}

// decodeVectors fills the vectors from r.
func decodeVectors(r io.Reader, vectors [][]float32) error {
	for i, v := range vectors {
		if _, err := io.ReadFull(r, kernel.Bytes(v)); err != nil {
			return fmt.Errorf("read vector %d of %d: %w", i+1, len(vectors), whole(err))
		}
	}
	return nil
}

// decodeEnd checks that r ends. Further bytes mean that the sender's model has other parameters than
// this peer's.
func decodeEnd(r io.Reader) error {
	switch n, err := io.ReadFull(r, make([]byte, 1)); {
	case n > 0:
		return errors.New("bytes follow after its end")
	case err != io.EOF:
		return fmt.Errorf("read the end: %w", err)
	}
	return nil
}

// whole turns an io.EOF in the middle of the data into io.ErrUnexpectedEOF.
func whole(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
