// Package ticket makes and parses tickets, with which a peer joins a running job, and the messages
// between a newcomer and a member. It is pure: no network, no clock.
//
//	t, err := ticket.New("mnist", root, expiry, addrs)     // at a member
//	record := ticket.Record{Key: t.Signer().ID, ...}       // signed by the member, kept by all members
//	line := t.String()                                     // for people to copy
//	t, err = ticket.Parse(line)                            // at the newcomer
//	credential := t.Credential(id)                         // shown to members
//
// # Design
//
// A ticket is a bearer token: the right to join, and nothing else. Its line has a seed of 16 random
// bytes, from which its holder derives a key pair (Signer). The conditions of the ticket, which are
// job, expiry and number of uses, are in a Record. The member that issues the ticket signs the
// record in a signed envelope of libp2p (core/record), and all members keep it with their view. So
//
//   - the holder can sign for newcomers with the key, but can neither make another ticket nor speak as a
//     member: members believe only the records of their view;
//   - members count uses and revoke tickets by agreement, whichever member is asked;
//   - a ticket outlives the member that has issued it, as all members keep its record;
//   - a member knows the public keys of tickets and not their seeds, so that a member that is kicked cannot
//     join again with a ticket that another member has issued.
//
// The price is that members must agree when a ticket is made: without a quorum no ticket can be
// made. In return lines are short: a signature alone would take 86 characters of a line, and
// members could not count the uses of the ticket. A line has about 80 characters with two IPv4
// addresses.
//
// A newcomer signs its own ID, which the connection has proven. So other peers cannot use a claim
// that they have overheard. The member answers with a MAC by the ticket's public key, which only
// members and the holder know: an impostor cannot make it.
//
// Members share no secret. A peer that a launcher starts later has a claim signed by the launcher's
// key, whose public half is in the first view. A member that was put out by mistake comes back
// under a new ID, with a claim that its old ID has signed.
package ticket

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/multiformats/go-multiaddr"
)

// Limits of Parse and New.
const (
	MaxLine  = 4 << 10 // bytes of a line
	MaxAddrs = 32
	SeedSize = 16
	maxText  = 255 // bytes of a job's name or an address
	sumSize  = 4
)

// prefix begins each line and names the version of the format. The rest is base64 for URLs, without
// padding, of these bytes:
//
//	expiry (varint, Unix seconds)   seed (16)   identity (8)   length of job, job   addresses
//	the first 4 bytes of the SHA-256 of the bytes before, which detects errors of copying
const prefix = "elrun2."

// Identity identifies a job. Two jobs with the same name have different identities.
type Identity [8]byte

// IdentityOf returns the identity of a job, from its name and the key of the launcher that began
// it.
func IdentityOf(job, root string) Identity {
	sum := sha256.Sum256([]byte("elrun job\n" + job + "\n" + root))
	return Identity(sum[:])
}

// Ticket admits its holder to a job.
type Ticket struct {
	Job      string
	Identity Identity
	Expiry   time.Time // whole seconds, UTC
	Seed     [SeedSize]byte
	Addrs    []string // multiaddrs of members; Host.Identify finds the ID where /p2p/ID is missing
}

// New makes a ticket with a seed, which must be random: anyone who knows the seed can join. It cuts
// expiry to whole seconds, and drops addresses beyond MaxAddrs. It fails for a job name that is
// empty or too long, without an address, and for an address that the text of a ticket cannot hold.
func New(job string, identity Identity, seed [SeedSize]byte, expiry time.Time, addrs []string) (Ticket, error) {
	t := Ticket{Job: job, Identity: identity, Expiry: time.Unix(expiry.Unix(), 0).UTC(), Seed: seed,
		Addrs: addrs[:min(len(addrs), MaxAddrs)]}
	if err := t.check(); err != nil {
		return Ticket{}, fmt.Errorf("ticket: new: %w", err)
	}
	return t, nil
}

// Signer returns the signer with the key of the ticket.
func (t Ticket) Signer() Signer { return SignerOf(t.Seed[:]) }

// Credential returns the credential that the newcomer with that ID sends to members.
func (t Ticket) Credential(newcomer string) Credential {
	return t.Signer().Credential(t.Job, t.Identity, newcomer)
}

// check returns an error for values that New must not accept.
func (t Ticket) check() error {
	switch {
	case len(t.Job) == 0 || len(t.Job) > maxText:
		return fmt.Errorf("job name of %d bytes, want 1 to %d", len(t.Job), maxText)
	case t.Expiry.Unix() <= 0:
		return errors.New("no expiry")
	case len(t.Addrs) == 0:
		return errors.New("no address")
	}
	_, err := appendAddrs(nil, t.Addrs)
	return err
}

// String returns the ticket as one line of letters, digits and "-_.".
func (t Ticket) String() string {
	b := binary.AppendUvarint(nil, uint64(t.Expiry.Unix()))
	b = append(append(b, t.Seed[:]...), t.Identity[:]...)
	b = append(append(b, byte(len(t.Job))), t.Job...)
	b, _ = appendAddrs(b, t.Addrs) // check has accepted them
	sum := sha256.Sum256(b)
	return prefix + base64.RawURLEncoding.EncodeToString(append(b, sum[:sumSize]...))
}

// Parse parses the result of String. White space around the line and line breaks in it are allowed.
// Parse does not check the expiry; the member does.
func Parse(line string) (Ticket, error) {
	t, err := parse(strings.TrimSpace(line))
	if err != nil {
		return Ticket{}, fmt.Errorf("ticket: parse: %w: %w", ErrFormat, err)
	}
	return t, nil
}

// errCut means that bytes of the line are missing or changed.
var errCut = errors.New("was it copied whole?")

// parse checks the prefix and the checksum, and decodes the line.
func parse(line string) (Ticket, error) {
	if len(line) > MaxLine {
		return Ticket{}, fmt.Errorf("%d bytes, at most %d", len(line), MaxLine)
	}
	body, ok := strings.CutPrefix(line, prefix)
	if !ok {
		return Ticket{}, fmt.Errorf("does not begin with %q", prefix)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err != nil {
		return Ticket{}, fmt.Errorf("%w %w", errCut, err)
	}
	if len(b) < sumSize {
		return Ticket{}, errCut
	}
	sum := sha256.Sum256(b[:len(b)-sumSize])
	if !bytes.Equal(sum[:sumSize], b[len(b)-sumSize:]) {
		return Ticket{}, errCut
	}
	t, err := decode(b[:len(b)-sumSize])
	if err != nil {
		return Ticket{}, err
	}
	return t, t.check()
}

// decode decodes the fields of a ticket. Each ticket has one encoding only.
func decode(b []byte) (Ticket, error) {
	expiry, n := binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 || expiry > 1<<60 {
		return Ticket{}, errCut
	}
	t := Ticket{Expiry: time.Unix(int64(expiry), 0).UTC()}
	b = b[n:]
	if len(b) < len(t.Seed)+len(t.Identity)+1 {
		return Ticket{}, errCut
	}
	b = b[copy(t.Seed[:], b):]
	b = b[copy(t.Identity[:], b):]
	length := int(b[0])
	if b = b[1:]; len(b) < length {
		return Ticket{}, errCut
	}
	t.Job, b = string(b[:length]), b[length:]
	addrs, err := readAddrs(b)
	t.Addrs = addrs
	return t, err
}

// Forms of an encoded address: an IP address with a TCP port; an index, added to the form, of an
// earlier address whose IP address is repeated with another port; or any multiaddr, after its
// length.
const (
	addrIP4   = 4
	addrIP6   = 6
	addrAgain = 0x80
	addrOther = 0
)

// appendAddrs appends the addresses, each in its shortest form. There is one encoding for each
// list, and readAddrs refuses any other, so two different lines are never the same ticket.
func appendAddrs(b []byte, addrs []string) ([]byte, error) {
	ips := make([]netip.Addr, 0, len(addrs))
	for _, text := range addrs {
		a, err := multiaddr.NewMultiaddr(text)
		if err != nil {
			return b, fmt.Errorf("address %q: %w", text, err)
		}
		ip, port, ok := splitTCP(a)
		before := slices.Index(ips, ip)
		ips = append(ips, ip)
		switch {
		case !ok:
			if b, err = appendOther(b, a, text); err != nil {
				return b, fmt.Errorf("address %q: %w", text, err)
			}
			continue
		case before >= 0:
			b = append(b, addrAgain|byte(before))
		case ip.Is6():
			b = append(append(b, addrIP6), ip.AsSlice()...)
		default:
			b = append(append(b, addrIP4), ip.AsSlice()...)
		}
		b = binary.BigEndian.AppendUint16(b, port)
	}
	return b, nil
}

// appendOther appends an address that is not an IP address with a TCP port.
func appendOther(b []byte, a multiaddr.Multiaddr, text string) ([]byte, error) {
	raw := a.Bytes()
	if len(raw) > maxText || a.String() != text {
		return b, fmt.Errorf("%d bytes, at most %d", len(raw), maxText)
	}
	return append(append(b, addrOther, byte(len(raw))), raw...), nil
}

// splitTCP returns the IP address and the port of an address; false if it has other parts.
func splitTCP(a multiaddr.Multiaddr) (netip.Addr, uint16, bool) {
	if len(a) != 2 || a[1].Code() != multiaddr.P_TCP || a[0].Code() != multiaddr.P_IP4 && a[0].Code() != multiaddr.P_IP6 {
		return netip.Addr{}, 0, false
	}
	ip, ok := netip.AddrFromSlice(a[0].RawValue())
	port, err := strconv.ParseUint(a[1].Value(), 10, 16)
	return ip, uint16(port), ok && err == nil && tcpAddr(ip, uint16(port)) == a.String()
}

// tcpAddr returns the multiaddr of an IP address and a TCP port.
func tcpAddr(ip netip.Addr, port uint16) string {
	family := "ip4"
	if ip.Is6() {
		family = "ip6"
	}
	return fmt.Sprintf("/%s/%s/tcp/%d", family, ip, port)
}

// readAddrs decodes the result of appendAddrs.
func readAddrs(b []byte) (addrs []string, err error) {
	var ips []netip.Addr
	for len(b) > 0 {
		if len(addrs) == MaxAddrs {
			return nil, fmt.Errorf("more than %d addresses", MaxAddrs)
		}
		form, text, ip := b[0], "", netip.Addr{}
		size := map[byte]int{addrIP4: 4, addrIP6: 16}[form]
		b = b[1:]
		switch known := int(form &^ addrAgain); {
		case form == addrOther:
			if text, b, err = readOther(b); err != nil {
				return nil, err
			}
		case form&addrAgain != 0 && known < len(ips) && ips[known].IsValid() && slices.Index(ips, ips[known]) == known:
			ip = ips[known]
		case size > 0 && len(b) >= size:
			ip, _ = netip.AddrFromSlice(b[:size])
			b = b[size:]
			if slices.Contains(ips, ip) {
				return nil, errCut // a repeated address has a shorter form
			}
		default:
			return nil, errCut
		}
		if ip.IsValid() {
			if len(b) < 2 {
				return nil, errCut
			}
			text, b = tcpAddr(ip, binary.BigEndian.Uint16(b)), b[2:]
		}
		addrs, ips = append(addrs, text), append(ips, ip)
	}
	return addrs, nil
}

// readOther decodes the result of appendOther.
func readOther(b []byte) (text string, rest []byte, err error) {
	if len(b) < 1 || len(b) < 1+int(b[0]) {
		return "", nil, errCut
	}
	raw := b[1 : 1+int(b[0])]
	a, err := multiaddr.NewMultiaddrBytes(raw)
	if err != nil {
		return "", nil, fmt.Errorf("address: %w", err)
	}
	if _, _, ok := splitTCP(a); ok {
		return "", nil, errCut
	}
	return a.String(), b[1+len(raw):], nil
}
