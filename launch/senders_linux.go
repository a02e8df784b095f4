package launch

import (
	"errors"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// senders reads from a socket and records which process sent the last data. The kernel provides
// the process ID, as seen from this process (SCM_CREDENTIALS). SO_PEERCRED would return the
// process that made the socket pair: the launcher itself.
type senders struct {
	*net.UnixConn
	last int // 0 if unknown; used by the reader only
}

// newSenders turns on the credentials of a socket. If that fails, senders.last stays 0.
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

// Read implements io.Reader and records the sender.
func (s *senders) Read(b []byte) (int, error) {
	// One read of a stream socket with SO_PASSCRED never returns data of two senders, so the
	// credentials are valid for all data of this read.
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

// senderOf returns the process ID in control messages, 0 if there is none.
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
