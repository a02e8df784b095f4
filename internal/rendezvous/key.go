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

// minKey is the least number of characters of a key: 128 bits in hexadecimal.
const minKey = 32

// errForeign reports that the other side has another key, and so belongs to another job. Such a
// launcher does not count as present, but like an unreachable address it prevents the start of the
// job.
var errForeign = errors.New("it has another key, or is not elrun")

// newTLS returns the TLS configuration for both sides of a connection between holders of a key. A
// key that is too short is an error.
func newTLS(key string) (*tls.Config, error) {
	key = strings.TrimSpace(key)
	if len(key) < minKey {
		return nil, fmt.Errorf("a key of %d characters: want %d or more", len(key), minKey)
	}
	seed, err := hkdf.Key(sha256.New, []byte(key), nil, "elrun rendezvous", ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive the key: %w", err)
	}
	private := ed25519.NewKeyFromSeed(seed)
	public := private.Public().(ed25519.PublicKey)
	// Only the public key is checked, so the certificate is valid at any time.
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<33, 0)}
	cert, err := x509.CreateCertificate(rand.Reader, form, form, public, private)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true,
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: private}},
		ClientAuth:   tls.RequireAnyClientCert, InsecureSkipVerify: true, // VerifyConnection checks the key in its place
		VerifyConnection: func(s tls.ConnectionState) error {
			other, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !ok || !public.Equal(other) {
				return errForeign
			}
			return nil
		}}, nil
}
