// Package dns is a DNS server for tests. It answers with the addresses that a test has set.
//
//	s := dns.Start(t, "127.0.0.1:0")
//	s.Set("mnist", netip.MustParseAddr("127.0.0.2"))
package dns

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// ttl is the time to live of an answer, in seconds.
const ttl = 1

// Server answers questions for A and AAAA records over UDP. It is safe for concurrent use.
type Server struct {
	conn net.PacketConn

	mu     sync.Mutex
	names  map[string][]netip.Addr // names in lower case, without the final dot
	broken bool
}

// Start starts a server on a UDP address. The end of the test stops it.
func Start(t testing.TB, addr string) *Server {
	t.Helper()
	conn, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{conn: conn, names: make(map[string][]netip.Addr)}
	var work sync.WaitGroup
	work.Go(s.serve)
	t.Cleanup(func() {
		_ = conn.Close()
		work.Wait()
	})
	return s
}

// Addr returns the address of the server.
func (s *Server) Addr() string { return s.conn.LocalAddr().String() }

// Set sets the addresses of a name. Without addresses the name does not exist.
func (s *Server) Set(name string, addrs ...netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[strings.ToLower(name)] = addrs
}

// Break makes the server answer every question with a server failure until a call of Break(false).
func (s *Server) Break(broken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken = broken
}

// serve answers questions until the connection is closed.
func (s *Server) serve() {
	buf := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		if b, err := s.answer(buf[:n]); err == nil {
			_, _ = s.conn.WriteTo(b, from) // if the answer is lost, the client asks again
		}
	}
}

// answer returns the answer to a message with one question.
func (s *Server) answer(b []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil || len(m.Questions) != 1 {
		return nil, errors.New("not one question")
	}
	q := m.Questions[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	addrs := s.names[strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))]
	m = dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionDesired: m.RecursionDesired}, Questions: m.Questions}
	switch {
	case s.broken:
		m.RCode = dnsmessage.RCodeServerFailure
	case len(addrs) == 0:
		m.RCode = dnsmessage.RCodeNameError
	}
	head := dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: ttl}
	for _, a := range addrs {
		switch {
		case s.broken:
		case a.Is4() && q.Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: a.As4()}})
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return m.Pack()
}
