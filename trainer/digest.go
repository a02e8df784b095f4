package trainer

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/cespare/xxhash/v2"
	"github.com/elrun/elrun/internal/raw"
)

// digestOf is a quick fingerprint of the parameters, in declaration order. It is
// for comparing peers of one job; it does not resist forgery.
func digestOf(params []Param) uint64 {
	h := xxhash.New()
	for _, p := range params {
		h.Write(raw.Bytes(p.Data)) // never fails
	}
	return h.Sum64()
}

// sha256Of returns the SHA-256 of the parameters in declaration order,
// little-endian, in hexadecimal.
func sha256Of(params []Param) string {
	h := sha256.New()
	for _, p := range params {
		h.Write(raw.Bytes(p.Data)) // never fails
	}
	return hex.EncodeToString(h.Sum(nil))
}
