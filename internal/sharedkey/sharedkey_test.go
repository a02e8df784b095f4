package sharedkey

import (
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
)

// shake returns the errors of a handshake of a server and a client.
func shake(t *testing.T, server, client *tls.Config) error {
	t.Helper()
	here, there := net.Pipe()
	defer here.Close()
	done := make(chan error, 1)
	go func() {
		c := tls.Server(there, server)
		err := c.Handshake()
		if err == nil {
			_, err = c.Write([]byte("x"))
		}
		done <- errors.Join(err, there.Close())
	}()
	c := tls.Client(here, client)
	err := c.Handshake()
	if err == nil {
		_, err = c.Read(make([]byte, 1))
	}
	return errors.Join(err, here.Close(), <-done)
}

// Ends with one secret and purpose connect, and no others.
func TestTLS(t *testing.T) {
	foreign := errors.New("foreign")
	config := func(secret, purpose string) *tls.Config {
		c, err := TLS([]byte(strings.Repeat(secret, Min)), purpose, foreign)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if err := shake(t, config("a", "x"), config("a", "x")); err != nil {
		t.Error(err)
	}
	for _, other := range []*tls.Config{config("b", "x"), config("a", "y")} {
		if err := shake(t, config("a", "x"), other); !errors.Is(err, foreign) {
			t.Errorf("got %v, want %v", err, foreign)
		}
	}
	if err := shake(t, config("a", "x"), &tls.Config{InsecureSkipVerify: true}); err == nil {
		t.Error("an end without a certificate connects")
	}
	if _, err := TLS(make([]byte, Min-1), "x", foreign); err == nil {
		t.Error("no error for a short secret")
	}
}
