package rendezvous

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"
)

// leastKey is the fewest characters of a key: 128 bits in hexadecimal digits.
const leastKey = 32

// errForeign: the other side has another key, and so is of another job.
var errForeign = errors.New("it has another key, or is no elrun")

// newTLS returns how holders of a key talk to each other, as both sides.
func newTLS(key string) (*tls.Config, error) {
	key = strings.TrimSpace(key)
	if len(key) < leastKey {
		return nil, fmt.Errorf("a key of %d characters: want %d or more", len(key), leastKey)
	}
	seed, err := hkdf.Key(sha256.New, []byte(key), nil, "elrun rendezvous", ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive the key: %w", err)
	}
	private := ed25519.NewKeyFromSeed(seed)
	public := private.Public().(ed25519.PublicKey)
	// Nobody looks at more than the key, so the certificate holds whatever the clocks say.
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0)}
	cert, err := x509.CreateCertificate(rand.Reader, form, form, public, private)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true,
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: private}},
		ClientAuth:   tls.RequireAnyClientCert, InsecureSkipVerify: true, // VerifyConnection does it
		VerifyConnection: func(s tls.ConnectionState) error {
			other, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !ok || !public.Equal(other) {
				return errForeign
			}
			return nil
		}}, nil
}
