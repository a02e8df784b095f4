// Package ticket makes and reads tickets, with which a peer joins a running job, and
// the proofs that a newcomer and a member exchange. It is pure: no network, no clock.
//
//	t, err := ticket.New(secret, "mnist", expiry, contacts) // at a member
//	line := t.String()                                       // for people to copy
//	t, err = ticket.Parse(line)                              // at the newcomer
//	proof := t.Proof()                                       // shown to a member
//
// A job has a secret that all its members hold. A ticket carries a key that is made of
// the secret and an expiry, so that members recognise it without having to remember
// it, and nobody can make it last longer. Newcomer and member show each other that they
// hold the key over a connection that has proven both their IDs; as the MAC covers the
// IDs no nonce is needed.
package ticket

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Sentinels, for errors.Is.
var (
	// ErrFormat: the line is no ticket.
	ErrFormat = errors.New("not a ticket")
	// ErrWrong: the key was not made of the secret of this job.
	ErrWrong = errors.New("wrong ticket: of another job, or altered")
	// ErrExpired: the ticket was right, but its time is over.
	ErrExpired = errors.New("ticket expired")
)

// Limits of what Parse accepts and New makes.
const (
	MaxLine     = 32 << 10 // bytes of a line
	MaxContacts = 32
	MaxAddrs    = 16  // per contact
	maxText     = 255 // bytes of a job's name, an ID or an address
)

// prefix names the version: a later format will have another.
const prefix = "elrun1."

// Contact is a member that a newcomer can ask: its ID and its multiaddrs, as text.
type Contact struct {
	ID    string   `json:"id"`
	Addrs []string `json:"addrs"`
}

// Ticket lets its holder into a job until it expires.
type Ticket struct {
	Job      string
	Expiry   time.Time // whole seconds, UTC
	Key      []byte    // KeySize bytes; whoever has it can join
	Contacts []Contact
}

// encoded is the form of a Ticket on a line.
type encoded struct {
	Job      string    `json:"job"`
	Expiry   int64     `json:"expiry"` // Unix seconds
	Key      []byte    `json:"key"`
	Contacts []Contact `json:"members"`
}

// New makes a ticket of the job's secret, KeySize bytes. expiry is cut to whole seconds;
// contacts beyond MaxContacts are left out, as are addresses beyond MaxAddrs.
func New(secret []byte, job string, expiry time.Time, contacts []Contact) (Ticket, error) {
	t := Ticket{Job: job, Expiry: time.Unix(expiry.Unix(), 0).UTC()}
	if len(secret) != KeySize {
		return Ticket{}, fmt.Errorf("ticket: new: secret of %d bytes, want %d", len(secret), KeySize)
	}
	t.Key = keyOf(secret, job, t.Expiry.Unix())
	for _, c := range contacts[:min(len(contacts), MaxContacts)] {
		t.Contacts = append(t.Contacts, Contact{ID: c.ID, Addrs: c.Addrs[:min(len(c.Addrs), MaxAddrs)]})
	}
	if err := t.check(); err != nil {
		return Ticket{}, fmt.Errorf("ticket: new: %w", err)
	}
	return t, nil
}

// String returns the ticket as one line of letters, digits and "-_.".
func (t Ticket) String() string {
	// None of the fields can fail to be encoded.
	b, _ := json.Marshal(encoded{t.Job, t.Expiry.Unix(), t.Key, t.Contacts})
	return prefix + base64.RawURLEncoding.EncodeToString(b)
}

// Parse reads what String wrote; white space around it and line breaks in it are
// allowed. It does not look at a clock: the member that is asked does.
func Parse(line string) (Ticket, error) {
	t, err := parse(strings.TrimSpace(line))
	if err != nil {
		return Ticket{}, fmt.Errorf("ticket: parse: %w: %w", ErrFormat, err)
	}
	return t, nil
}

func parse(line string) (Ticket, error) {
	if len(line) > MaxLine {
		return Ticket{}, fmt.Errorf("%d bytes, at most %d", len(line), MaxLine)
	}
	body, ok := strings.CutPrefix(line, prefix)
	if !ok {
		return Ticket{}, fmt.Errorf("does not begin with %q", prefix)
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err != nil {
		return Ticket{}, fmt.Errorf("was it copied whole? %w", err)
	}
	var e encoded
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return Ticket{}, fmt.Errorf("was it copied whole? %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Ticket{}, errors.New("something follows the ticket")
	}
	t := Ticket{e.Job, time.Unix(e.Expiry, 0).UTC(), e.Key, e.Contacts}
	return t, t.check()
}

// check refuses what no member would make.
func (t Ticket) check() error {
	switch {
	case len(t.Job) > maxText:
		return fmt.Errorf("job name of %d bytes, at most %d", len(t.Job), maxText)
	case t.Expiry.Unix() <= 0:
		return errors.New("no expiry")
	case len(t.Key) != KeySize:
		return fmt.Errorf("key of %d bytes, want %d", len(t.Key), KeySize)
	case len(t.Contacts) == 0 || len(t.Contacts) > MaxContacts:
		return fmt.Errorf("%d members, want 1 to %d", len(t.Contacts), MaxContacts)
	}
	for _, c := range t.Contacts {
		if c.ID == "" || len(c.ID) > maxText || len(c.Addrs) > MaxAddrs {
			return fmt.Errorf("member with an ID of %d bytes and %d addresses", len(c.ID), len(c.Addrs))
		}
		for _, a := range c.Addrs {
			if a == "" || len(a) > maxText {
				return fmt.Errorf("address of %d bytes", len(a))
			}
		}
	}
	return nil
}

// Proof returns what the newcomer proves itself with.
func (t Ticket) Proof() Proof { return Proof{Expiry: t.Expiry.Unix(), Key: t.Key} }
