package colocated

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// KeySize is the length of a Key in bytes.
const KeySize = 32

// Key is the secret that the processes share.
type Key [KeySize]byte

// Code is the reason why a stream is refused; 0 means that it is accepted.
type Code uint32

// wrongKey is the one code that is sent without a proof: the dialler does not hold the listener's
// key. The user of the package defines all other values.
const wrongKey Code = 1<<32 - 1

const (
	// MaxID is the length of the longest ID, in bytes.
	MaxID = 64

	helloMagic = "elr\x01"
	macSize    = sha256.Size
	// helloSize is the length of a hello in bytes:
	//
	//	0 magic   4 kind   5, 6 lengths of IDs   7 zero   8 from   72 to   136 number   144 HMAC
	helloSize   = helloSigned + macSize
	helloSigned = 8 + 2*MaxID + 8
	// answerSize is the length of an answer in bytes: a code and an HMAC.
	answerSize = 4 + macSize
)

// Labels for domain separation: a MAC for one purpose is never valid for the other.
const (
	helloLabel  = "elrun colocated hello"
	answerLabel = "elrun colocated answer"
)

var (
	// errFormat means that the bytes are no hello.
	errFormat = errors.New("malformed hello")
	// errProof means that the other side does not hold the key.
	errProof = errors.New("the other side does not hold the key")
)

// ErrKey means that the listener does not hold the key, or belongs to another user. Then the
// listener is not the peer, or the dialler must reach the peer in another way.
var ErrKey = errors.New("the program that listens there does not share the key")

// RefusedError is the error of a stream that the other side has refused.
type RefusedError struct{ Code Code }

// Error implements error.
func (r *RefusedError) Error() string { return fmt.Sprintf("refused with code %d", r.Code) }

// hello is the first message of the dialler.
type hello struct {
	kind     byte
	from, to string
	number   uint64 // counts the dialler's hellos from 1
}

// mac returns the HMAC of label and b, which only a holder of the key can make.
func (k *Key) mac(label string, b []byte) [macSize]byte {
	m := hmac.New(sha256.New, k[:])
	m.Write([]byte(label)) // never fails
	m.Write(b)
	return [macSize]byte(m.Sum(nil))
}

// encode returns the hello with its HMAC. The IDs have at most MaxID bytes.
func (h *hello) encode(k *Key) [helloSize]byte {
	var b [helloSize]byte
	copy(b[:], helloMagic)
	b[4], b[5], b[6] = h.kind, byte(len(h.from)), byte(len(h.to))
	copy(b[8:8+MaxID], h.from)
	copy(b[8+MaxID:], h.to)
	binary.LittleEndian.PutUint64(b[8+2*MaxID:], h.number)
	proof := k.mac(helloLabel, b[:helloSigned])
	copy(b[helloSigned:], proof[:])
	return b
}

// decodeHello decodes a hello, without checking the HMAC. Each hello has one encoding.
func decodeHello(b *[helloSize]byte) (hello, error) {
	from, to := int(b[5]), int(b[6])
	if string(b[:4]) != helloMagic || from > MaxID || to > MaxID || b[7] != 0 {
		return hello{}, errFormat
	}
	h := hello{kind: b[4], from: string(b[8 : 8+from]), to: string(b[8+MaxID : 8+MaxID+to])}
	if !zero(b[8+from:8+MaxID]) || !zero(b[8+MaxID+to:8+2*MaxID]) {
		return hello{}, errFormat
	}
	h.number = binary.LittleEndian.Uint64(b[8+2*MaxID:])
	return h, nil
}

// zero reports whether all bytes are 0.
func zero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// proven reports whether a holder of the key has made the hello.
func proven(k *Key, b *[helloSize]byte) bool {
	want := k.mac(helloLabel, b[:helloSigned])
	return hmac.Equal(b[helloSigned:], want[:])
}

// encodeAnswer returns the answer to a hello.
func encodeAnswer(k *Key, to *[helloSize]byte, code Code) [answerSize]byte {
	var b [answerSize]byte
	binary.LittleEndian.PutUint32(b[:], uint32(code))
	if code == wrongKey {
		return b // nothing that depends on the key is sent
	}
	proof := answerProof(k, to, b[:4])
	copy(b[4:], proof[:])
	return b
}

// answerProof returns the HMAC of an answer. It covers the HMAC of the hello, which is unique, so
// that an answer cannot be replayed.
func answerProof(k *Key, to *[helloSize]byte, code []byte) [macSize]byte {
	return k.mac(answerLabel, append(append(make([]byte, 0, macSize+4), to[helloSigned:]...), code...))
}

// decodeAnswer returns nil if a holder of the key has accepted the hello.
func decodeAnswer(k *Key, to *[helloSize]byte, b *[answerSize]byte) error {
	code := Code(binary.LittleEndian.Uint32(b[:]))
	if code == wrongKey {
		return ErrKey
	}
	want := answerProof(k, to, b[:4])
	if !hmac.Equal(b[4:], want[:]) {
		return fmt.Errorf("%w: %w", ErrKey, errProof)
	}
	if code != 0 {
		return &RefusedError{Code: code}
	}
	return nil
}

// window detects replayed hellos by their numbers, as the sliding window of IPsec (RFC 4303,
// section 3.4.3) does. Numbers may arrive out of order, as each comes over a socket of its own. A
// number windowSize or more below the highest is treated as seen.
type window struct {
	// highest is the highest number of a hello so far. Older numbers are accepted within the
	// window, each once.
	highest uint64
	seen    [windowSize / 64]uint64 // bit n modulo windowSize for number n
}

// windowSize is the number of hellos of one process that can be in flight at once.
const windowSize = 1024

// accept records a number, and reports whether it is new.
func (w *window) accept(n uint64) bool {
	if n == 0 || n+windowSize <= w.highest {
		return false
	}
	if n > w.highest {
		if n-w.highest >= windowSize {
			w.seen = [windowSize / 64]uint64{}
		} else {
			for i := w.highest + 1; i < n; i++ {
				w.seen[i/64%uint64(len(w.seen))] &^= 1 << (i % 64)
			}
		}
		w.seen[n/64%uint64(len(w.seen))] |= 1 << (n % 64)
		w.highest = n
		return true
	}
	word, bit := &w.seen[n/64%uint64(len(w.seen))], uint64(1)<<(n%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}
