package direct

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// congestionOf returns the name of a socket's congestion control.
func congestionOf(t *testing.T, sock syscall.Conn) (name string) {
	t.Helper()
	raw, err := sock.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var asked error
	err = raw.Control(func(fd uintptr) { name, asked = congestionControl(int(fd)) })
	if err = errors.Join(err, asked); err != nil {
		t.Fatal(err)
	}
	return name
}

// begunWith returns both ends of a connection. Before they were connected, the sockets had the given congestion control.
func begunWith(t *testing.T, name string) [2]*net.TCPConn {
	t.Helper()
	var lacks error
	begin := func(network, addr string, raw syscall.RawConn) error {
		err := raw.Control(func(fd uintptr) { lacks = errors.Join(lacks, setCongestionControl(int(fd), name)) })
		return errors.Join(err, avoidBBR(network, addr, raw))
	}
	listen, dial := net.ListenConfig{Control: begin}, net.Dialer{Control: begin}
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialed, err := dial.DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = dialed.Close(), accepted.Close() })
	if lacks != nil {
		t.Skipf("this kernel or user cannot have %s: %v", name, lacks)
	}
	return [2]*net.TCPConn{dialed.(*net.TCPConn), accepted.(*net.TCPConn)}
}

// No connection begins with BBR, and any other default stays. If BBR is the default, the connection switches to it on a long
// path.
func TestAvoidBBR(t *testing.T) {
	usual, err := usualCongestionControl()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"reno", "bbr"} {
		for _, sock := range begunWith(t, name) {
			takeBBR(sock, nearBelow-1)
			begun := congestionOf(t, sock)
			if isBBR(begun, nil) || name == "reno" && begun != "reno" {
				t.Errorf("%s became %s", name, begun)
			}
			want := begun
			if isBBR(usual, nil) {
				want = usual
			}
			takeBBR(sock, nearBelow)
			if far := congestionOf(t, sock); far != want {
				t.Errorf("%s became %s over a long way, want %s", begun, far, want)
			}
		}
	}
}

// Neither the listeners of a Port nor the connections that are dialled to it begin with BBR.
func TestPortAvoidsBBR(t *testing.T) {
	p := opened(t)
	for _, l := range p.listeners {
		if l, ok := l.(*net.TCPListener); ok && isBBR(congestionOf(t, l), nil) {
			t.Error("the listener has BBR")
		}
	}
	to := Target{Network: "tcp", Addr: p.offer.Addrs[0].String()}
	first, _, err := to.reach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sock := range connectMore(t.Context(), to, first) {
		defer sock.Close()
		if isBBR(congestionOf(t, sock.(*net.TCPConn)), nil) {
			t.Error("the dialler has BBR")
		}
	}
}
