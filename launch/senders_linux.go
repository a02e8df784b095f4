package launch

import (
	"errors"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// senders reads a socket and notes which process has sent what was read last. The kernel
// says so, in this process's numbering. (SO_PEERCRED would name the process that made the pair
// of sockets: the launcher itself.)
type senders struct {
	*net.UnixConn
	last int // 0 if it is not known; for the reader alone
}

// newSenders asks the kernel for the senders from now on.
func newSenders(conn *net.UnixConn) (*senders, error) {
	s := &senders{UnixConn: conn}
	raw, err := conn.SyscallConn()
	if err != nil {
		return s, err
	}
	var option error
	err = raw.Control(func(fd uintptr) { option = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	return s, errors.Join(err, os.NewSyscallError("setsockopt", option))
}

// Read implements io.Reader.
func (s *senders) Read(b []byte) (int, error) {
	control := make([]byte, unix.CmsgSpace(unix.SizeofUcred))
	n, controls, _, _, err := s.ReadMsgUnix(b, control)
	switch {
	case errors.Is(err, io.EOF):
		return 0, io.EOF
	case err != nil:
		return 0, err
	case controls > 0:
		s.last = senderOf(control[:controls])
	}
	return n, nil
}

// senderOf returns the process that control messages name, 0 if they name none.
func senderOf(control []byte) int {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return 0
	}
	for _, m := range messages {
		if cred, err := unix.ParseUnixCredentials(&m); err == nil {
			return int(cred.Pid)
		}
	}
	return 0
}
