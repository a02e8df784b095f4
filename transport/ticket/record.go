package ticket

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/record"
)

// Record has the conditions of a ticket. The member that issues the ticket signs it, and all
// members keep it. The record does not have the number of uses so far: members count the uses by
// agreement.
type Record struct {
	Root   string `json:"r,omitempty"` // key of the launcher that began the job
	Key    string `json:"k"`           // key of the ticket
	Job    string `json:"j"`
	Made   int64  `json:"m"`           // Unix seconds
	Expiry int64  `json:"e"`           // Unix seconds; 0: never
	Uses   uint64 `json:"u,omitempty"` // number of peers; 0: any
}

// Domain implements record.Record. It separates this signature from all others.
func (*Record) Domain() string { return "elrun-ticket" }

// Codec implements record.Record. The value is from multicodec's range of private use (0x300000),
// as an unsigned varint.
func (*Record) Codec() []byte { return []byte{0x80, 0x80, 0xc0, 0x01} }

// MarshalRecord implements record.Record.
func (r *Record) MarshalRecord() ([]byte, error) { return json.Marshal(r) }

// UnmarshalRecord implements record.Record.
func (r *Record) UnmarshalRecord(b []byte) error { return json.Unmarshal(b, r) }

// Seal returns the record in a signed envelope.
func (r Record) Seal(key crypto.PrivKey) ([]byte, error) {
	envelope, err := record.Seal(&r, key)
	if err != nil {
		return nil, fmt.Errorf("ticket: sign: %w", err)
	}
	b, err := envelope.Marshal()
	if err != nil {
		return nil, fmt.Errorf("ticket: sign: %w", err)
	}
	return b, nil
}

// Open checks the signature of a sealed record. It returns the record and the ID of the signer; the
// caller decides whether that signer may issue tickets. Every error wraps ErrUnknown.
func Open(b []byte) (r Record, issuer string, err error) {
	envelope, err := record.ConsumeTypedEnvelope(b, &r)
	if err != nil {
		return Record{}, "", fmt.Errorf("ticket: open: %w: %w", ErrUnknown, err)
	}
	id, err := peer.IDFromPublicKey(envelope.PublicKey)
	if err != nil {
		return Record{}, "", fmt.Errorf("ticket: open: %w: %w", ErrUnknown, err)
	}
	return r, id.String(), nil
}

// Check returns the decision on the ticket of a record at a time, after used uses: In, Expired or
// UsedUp.
func (r Record) Check(used uint64, now time.Time) Decision {
	switch {
	case r.Expiry != 0 && now.Unix() > r.Expiry:
		return Expired
	case r.Uses != 0 && used >= r.Uses:
		return UsedUp
	}
	return In
}
