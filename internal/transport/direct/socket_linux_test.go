package direct

import (
	"net"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// congestion sets the congestion control of a connection, if name is not empty, and
// returns it.
func congestion(t *testing.T, sock net.Conn, name string) (now string, err error) {
	t.Helper()
	err = control(sock, func(fd int) (err error) {
		if name != "" {
			if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, name); err != nil {
				return err
			}
		}
		now, err = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		return err
	})
	return strings.TrimRight(now, "\x00"), err
}

// Between near hosts no connection is under BBR; what the system has chosen else stays.
func TestLeaveBBR(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for _, name := range []string{"reno", "bbr"} {
		sock, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer sock.Close()
		if _, err := congestion(t, sock, name); err != nil {
			t.Skipf("this kernel or user cannot have %s: %v", name, err)
		}
		newBundle([]net.Conn{sock})
		now, err := congestion(t, sock, "")
		if err != nil || now == "bbr" || name == "reno" && now != "reno" {
			t.Errorf("%s became %q, %v", name, now, err)
		}
	}
}
