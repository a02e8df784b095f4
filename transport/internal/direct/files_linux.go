package direct

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// MaxFiles is the number of files that can be sent in one call.
const MaxFiles = 250

// errLost means that the kernel has dropped received files, for example because of the limit of
// open files.
var errLost = errors.New("files were lost: this process has probably reached its limit of open files")

// SendFiles writes b, which must not be empty, and passes the files to the other side (SCM_RIGHTS).
// The caller still owns its files. The connection must be a Unix socket.
func (c *Conn) SendFiles(b []byte, files []*os.File) error {
	sock, ok := c.sock.(*net.UnixConn)
	if !ok {
		return errors.New("direct: send files: the connection is not a Unix socket")
	}
	// Fd returns only a number. KeepAlive below keeps the finalizers from closing the files
	// before the kernel has duplicated the descriptors.
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	n, _, err := sock.WriteMsgUnix(b, rights, nil)
	runtime.KeepAlive(files)
	// A short write has passed all descriptors, because they go with the first byte. The other
	// bytes are sent without descriptors.
	if err == nil && n < len(b) {
		_, err = sock.Write(b[n:])
	}
	if err != nil {
		return fmt.Errorf("direct: send files: %w", err)
	}
	return nil
}

// ReceiveFiles fills b, and returns the files that came with these bytes. The caller owns them,
// also if there is an error. A call must begin at the first byte of a SendFiles: the kernel passes
// descriptors with the first byte of a message, and a plain Read would drop them.
func (c *Conn) ReceiveFiles(b []byte) ([]*os.File, error) {
	sock, ok := c.sock.(*net.UnixConn)
	if !ok {
		return nil, errors.New("direct: receive files: the connection is not a Unix socket")
	}
	var files []*os.File
	rights := make([]byte, unix.CmsgSpace(4*MaxFiles))
	for len(b) > 0 {
		n, m, flags, _, err := sock.ReadMsgUnix(b, rights)
		// The files are collected before errors are checked, so that the caller can close them.
		came, wrong := filesOf(rights[:m])
		files = append(files, came...)
		switch {
		case err != nil:
		case n == 0:
			err = io.ErrUnexpectedEOF
		// The kernel drops descriptors that it cannot install, and reports only this flag.
		case flags&unix.MSG_CTRUNC != 0:
			err = errLost
		}
		if err = errors.Join(err, wrong); err != nil {
			return files, fmt.Errorf("direct: receive files: %w", err)
		}
		b = b[n:]
	}
	return files, nil
}

// filesOf returns the files in the control messages of a read, also those before an error. They
// are open already: a caller that drops them leaks descriptors.
func filesOf(rights []byte) ([]*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}
