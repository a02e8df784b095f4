package discovery

import (
	"bytes"
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/elastic"
)

// The format and the limits of a record. Anything longer is neither stored nor decoded.
const (
	// MaxMembers bounds the members in a record, and MaxAddrs the addresses of each.
	MaxMembers = 16
	MaxAddrs   = 8
	maxID      = 128 // bytes of an ID
	maxAddr    = 255 // bytes of an address

	version    = 1
	boxText    = 2 << 10           // bytes of the padded text in a box
	boxSize    = boxText + 12 + 16 // nonce and tag of AES-GCM
	headSize   = 1 + 8             // version and number
	recordSize = headSize + boxSize + ed25519.SignatureSize

	// namespace begins the names of records.
	namespace = "/elrun/"
)

// errRecord reports bytes that are no valid record. Such bytes are ignored: they come from a faulty
// or hostile node.
var errRecord = errors.New("no record of a job")

// keys are the keys that are derived from the key of a job.
type keys struct {
	sign ed25519.PrivateKey // signs records; its public key is the name of the record
	box  cipher.AEAD        // encrypts the members of a record
}

// deriveKeys derives the keys. A record reveals nothing about the key from which they are derived.
func deriveKeys(key string) (keys, error) {
	// Separate keys for each purpose (HKDF, RFC 5869).
	derive := func(use string, size int) ([]byte, error) {
		return hkdf.Key(sha256.New, []byte(key), nil, "elrun announcement "+use, size)
	}
	seed, err := derive("signature", ed25519.SeedSize)
	if err != nil {
		return keys{}, fmt.Errorf("derive the key: %w", err)
	}
	secret, err := derive("box", 32)
	if err != nil {
		return keys{}, fmt.Errorf("derive the key: %w", err)
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return keys{}, fmt.Errorf("derive the key: %w", err)
	}
	box, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return keys{}, fmt.Errorf("derive the key: %w", err)
	}
	return keys{ed25519.NewKeyFromSeed(seed), box}, nil
}

// name returns the name of the record in the table.
func (k keys) name() string { return namespace + string(k.sign.Public().(ed25519.PublicKey)) }

// signedText returns the text that the signature of a record covers. The fixed first line keeps a
// signature from being valid for any other purpose. The name binds the record to its place in the
// table.
func signedText(name string, body []byte) []byte {
	return slices.Concat([]byte("elrun announcement\n"), []byte(name), body)
}

// seal returns a signed record. Members and addresses beyond the limits are left out. The box
// authenticates name, version and number as associated data, so that a box cannot be moved to
// another record.
func (k keys) seal(number uint64, members []elastic.Member) ([]byte, error) {
	text, err := encodeMembers(members)
	if err != nil {
		return nil, err
	}
	body := binary.BigEndian.AppendUint64([]byte{version}, number)
	body = k.box.Seal(body, nil, text, slices.Concat([]byte(k.name()), body))
	return append(body, ed25519.Sign(k.sign, signedText(k.name(), body))...), nil
}

// open checks and decrypts a record and returns its members. Members that exceed the limits are
// left out. Nodes verify the signature as well, but the node that answers may be faulty.
func (k keys) open(record []byte) ([]elastic.Member, error) {
	if err := checkRecord(k.name(), record); err != nil {
		return nil, err
	}
	body := record[:len(record)-ed25519.SignatureSize]
	text, err := k.box.Open(nil, nil, body[headSize:], slices.Concat([]byte(k.name()), body[:headSize]))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	return decodeMembers(text)
}

// next returns the number for a new record. The previous record is before; it may be nil. next
// returns 0 if the previous record has the same content and is younger than freshAge. Numbers are
// times in Unix milliseconds; the previous record may have a number in the future, because the
// clock of its author was ahead.
func (k keys) next(before []byte, members []elastic.Member, now time.Time) (uint64, error) {
	number := uint64(now.UnixMilli())
	if before == nil {
		return number, nil
	}
	last := numberOf(before)
	if last == math.MaxUint64 {
		return 0, ErrHeld
	}
	// A number in the future says nothing about the age of the record, so such a record is always
	// replaced.
	if last <= number && number-last < uint64(freshAge.Milliseconds()) && k.sameMembers(before, members) {
		return 0, nil
	}
	return max(number, last+1), nil
}

// sameMembers reports whether a record names the same members as a record made of these members.
func (k keys) sameMembers(record []byte, members []elastic.Member) bool {
	// Encode and decode drop the members and addresses that a record cannot hold, so that both
	// sides are compared within the same limits.
	text, err := encodeMembers(members)
	if err != nil {
		return false
	}
	want, err := decodeMembers(text)
	if err != nil {
		return false
	}
	said, err := k.open(record)
	return err == nil && slices.EqualFunc(said, want, func(a, b elastic.Member) bool { return a.ID == b.ID })
}

// checkRecord returns an error unless a record is valid under a name.
func checkRecord(name string, record []byte) error {
	public, ok := strings.CutPrefix(name, namespace)
	switch {
	case !ok || len(public) != ed25519.PublicKeySize:
		return fmt.Errorf("%w: its name is not the key of a job", errRecord)
	case len(record) != recordSize || record[0] != version:
		return fmt.Errorf("%w: it has another size or version", errRecord)
	}
	body, signature := record[:len(record)-ed25519.SignatureSize], record[len(record)-ed25519.SignatureSize:]
	if !ed25519.Verify(ed25519.PublicKey(public), signedText(name, body), signature) {
		return fmt.Errorf("%w: its signature is wrong", errRecord)
	}
	return nil
}

// numberOf returns the number of a record that has passed checkRecord.
func numberOf(record []byte) uint64 { return binary.BigEndian.Uint64(record[1:headSize]) }

// validator decides which records the table keeps. It implements record.Validator of
// go-libp2p-record.
type validator struct{}

// Validate implements record.Validator.
func (validator) Validate(name string, value []byte) error { return checkRecord(name, value) }

// Select implements record.Validator. It selects the record with the highest number. Among records
// with the same number it selects the record whose bytes are the greatest, so that all nodes agree.
func (validator) Select(name string, values [][]byte) (int, error) {
	best := -1
	for i, v := range values {
		if checkRecord(name, v) != nil {
			continue
		}
		if best < 0 || cmp.Or(cmp.Compare(numberOf(v), numberOf(values[best])), bytes.Compare(v, values[best])) > 0 {
			best = i
		}
	}
	if best < 0 {
		return 0, errRecord
	}
	return best, nil
}

// entry is the entry of a member in a box. The short field names leave room for more members in the
// box of fixed size.
type entry struct {
	ID    string   `json:"i"`
	Addrs []string `json:"a"`
}

// valid reports whether a member is within the limits of a box.
func (e entry) valid() bool {
	if e.ID == "" || len(e.ID) > maxID || len(e.Addrs) == 0 || len(e.Addrs) > MaxAddrs {
		return false
	}
	for _, a := range e.Addrs {
		if a == "" || len(a) > maxAddr {
			return false
		}
	}
	return true
}

// encodeMembers encodes the first members, as many as fit in a box, and pads the text. It leaves
// out members without addresses.
func encodeMembers(members []elastic.Member) ([]byte, error) {
	places, text := []entry{}, []byte("[]")
	for _, m := range members {
		p := entry{string(m.ID), m.Addrs[:min(len(m.Addrs), MaxAddrs)]}
		if !p.valid() {
			continue
		}
		more, err := json.Marshal(append(places, p))
		if err != nil {
			return nil, fmt.Errorf("encode members: %w", err)
		}
		// If this member does not fit, the text without it is used: it is complete JSON.
		if len(more) > boxText || len(places) == MaxMembers {
			break
		}
		places, text = append(places, p), more
	}
	// All records have one size, so that the size does not reveal the number of members. JSON
	// allows blanks at the end.
	return append(text, bytes.Repeat([]byte(" "), boxText-len(text))...), nil
}

// decodeMembers is the inverse of encodeMembers. The text may come from any holder of the key, so
// it is not trusted.
func decodeMembers(text []byte) ([]elastic.Member, error) {
	var places []entry
	if len(text) > boxText {
		return nil, errRecord
	}
	if err := json.Unmarshal(text, &places); err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	var out []elastic.Member
	for _, p := range places[:min(len(places), MaxMembers)] {
		if p.valid() {
			out = append(out, elastic.Member{ID: elastic.ID(p.ID), Addrs: p.Addrs})
		}
	}
	return out, nil
}
