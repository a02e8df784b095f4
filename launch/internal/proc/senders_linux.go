package proc

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// senders reads from a socket and records which process sent the last data. The kernel provides
// the process ID, as seen from this process (SCM_CREDENTIALS). SO_PEERCRED would return the
// process that made the socket pair: the launcher itself.
type senders struct {
	*net.UnixConn
	last int // 0 if unknown; used by the reader only
	// word is the last file that came with data, the memory of a ProcessWord; nil for none. Used by the
	// reader only.
	word *os.File
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
	control := make([]byte, unix.CmsgSpace(unix.SizeofUcred)+unix.CmsgSpace(fileSize))
	n, controls, _, _, err := s.ReadMsgUnix(b, control)
	switch {
	case errors.Is(err, io.EOF):
		return 0, io.EOF
	case err != nil:
		return 0, err
	case controls > 0:
		s.received(control[:controls])
	}
	return n, nil
}

// fileSize is the size of a descriptor in a control message, in bytes.
const fileSize = 4

// received records the sender and the file in control messages.
func (s *senders) received(control []byte) {
	s.last = 0
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return
	}
	for _, m := range messages {
		if cred, err := unix.ParseUnixCredentials(&m); err == nil {
			s.last = int(cred.Pid)
		}
		files, _ := unix.ParseUnixRights(&m) // an error means that the message has no files
		for _, fd := range files {
			s.drop()
			s.word = os.NewFile(uintptr(fd), "word")
		}
	}
}

// take returns the last file that came with data, if it was not taken already. The caller owns it.
func (s *senders) take() *os.File {
	f := s.word
	s.word = nil
	return f
}

// drop closes the file that nobody has taken.
func (s *senders) drop() {
	if f := s.take(); f != nil {
		_ = f.Close() // nothing was written
	}
}

// sidecars bounds the number of processes between a program and its sidecar, such as shells.
const sidecars = 16

// principal returns the process for which the sender of the last data says hello. named is the ID of that
// process as the sender sees it, perhaps in another namespace of process IDs. It is the sender or an
// ancestor of it; for any other name the sender speaks for itself.
func (s *senders) principal(named int) int {
	pid := s.last
	for range sidecars {
		if named == 0 || pid <= 1 {
			break
		}
		if innermost(pid) == named {
			return pid
		}
		at, ok := readStat("/proc/" + strconv.Itoa(pid))
		if !ok {
			break
		}
		pid = at.parent
	}
	return s.last
}

// innermost returns the ID of a process in the innermost namespace that it is in; 0 if unknown.
func innermost(pid int) int {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0
	}
	_, rest, found := bytes.Cut(text, []byte("\nNSpid:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	ids := bytes.Fields(line)
	if !found || len(ids) == 0 { // a kernel without such namespaces
		return pid
	}
	id, _ := strconv.Atoi(string(ids[len(ids)-1])) // 0 is no process
	return id
}
