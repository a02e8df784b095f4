// Package sharedkey connects processes that share a secret, by TLS 1.3:
//
//	config, err := sharedkey.TLS(secret, "elrun rendezvous", errForeign)
//	conn = tls.Client(conn, config)   // and tls.Server(conn, config) at the other end
//
// Both ends derive the same pair of Ed25519 keys from the secret, and each end proves that it has the
// pair. So possession of the secret is the only proof of identity.
package sharedkey

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
)

// Min is the least length of a secret in bytes: 128 bits in hexadecimal.
const Min = 32

// TLS returns the configuration of both ends. Ends with different purposes do not connect. The error of a
// handshake with an end that does not have the secret wraps foreign. A secret shorter than Min is an
// error.
func TLS(secret []byte, purpose string, foreign error) (*tls.Config, error) {
	if len(secret) < Min {
		return nil, fmt.Errorf("a key of %d characters: want %d or more", len(secret), Min)
	}
	seed, err := hkdf.Key(sha256.New, secret, nil, purpose, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive the key: %w", err)
	}
	private := ed25519.NewKeyFromSeed(seed)
	public := private.Public().(ed25519.PublicKey)
	form := &x509.Certificate{SerialNumber: big.NewInt(1)}
	cert, err := x509.CreateCertificate(rand.Reader, form, form, public, private)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true,
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: private}},
		ClientAuth:   tls.RequireAnyClientCert,
		// VerifyConnection compares the key; names and dates of the certificate are not checked.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			other, ok := s.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
			if !ok || !public.Equal(other) {
				return foreign
			}
			return nil
		}}, nil
}
