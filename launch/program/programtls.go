package program

import (
	"crypto"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"

	"github.com/elrun/elrun/launch/internal/wire"
)

// Between hosts the processes of a program use TLS 1.3. Both ends derive the same key from a
// secret, which the launcher passes only to its own processes, and each end requires that the other
// end has the key.

// programTLS returns the TLS configuration of both ends.
func programTLS(secret []byte) (*tls.Config, error) {
	if len(secret) != wire.SecretSize {
		return nil, fmt.Errorf("the launcher has sent a secret of %d bytes, want %d", len(secret), wire.SecretSize)
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, "elrun program", ed25519.SeedSize)
	if err != nil {
		return nil, err
	}
	key := ed25519.NewKeyFromSeed(seed)
	// The certificates of both ends have the same key, so that possession of the secret is the only
	// proof of identity.
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ClientAuth:   tls.RequireAnyClientCert,
		// VerifyConnection compares the key; names and dates of the certificate are not checked.
		InsecureSkipVerify: true,
		VerifyConnection:   func(s tls.ConnectionState) error { return hasKey(s, key.Public()) },
	}, nil
}

// hasKey reports an error unless the other end has the key of the program. The TLS handshake has
// proved possession of the key.
func hasKey(s tls.ConnectionState, want crypto.PublicKey) error {
	if len(s.PeerCertificates) != 1 {
		return errors.New("the other end has no certificate")
	}
	if got, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey); !ok || !got.Equal(want) {
		return errors.New("the other end is not a process of this program")
	}
	return nil
}
