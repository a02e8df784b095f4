package wire

import (
	"net"
	"os"
	"sync/atomic"
	"syscall"
)

// The wait status of a killed process comes when the kernel has freed its memory, which takes 65 ms
// for each GB. The end of its program is known earlier, by a word (shm.ProcessWord):
//
//	program    holds a word, and passes its memory with hello through the socket
//	launcher,  watches the words of the programs on its host, and sends dying to the launcher's
//	  agent    loop
//	launcher   tells the other peers that the program is dead; the end of its process comes later, with
//	           the status
//
// The memory goes through the socket, so it reaches the launcher from every program that can say
// hello, however many wrappers there are around it. Where the word is missing, the status tells. The
// word belongs to the ID of the hello: the end of a program says nothing about a further program of
// the same wrapper.

// WordConn is a peer's socket to its launcher. It passes a file with the next data.
type WordConn struct {
	*net.UnixConn
	Word atomic.Pointer[os.File] // the file to pass; nil for none
}

// Write implements io.Writer.
func (w *WordConn) Write(b []byte) (n int, err error) {
	if f := w.Word.Load(); f != nil && len(b) > 0 {
		w.Word.Store(nil)
		// A socket may take a part of a message; of one byte it takes all or nothing.
		if n, _, err = w.WriteMsgUnix(b[:1], syscall.UnixRights(int(f.Fd())), nil); err != nil {
			return n, err
		}
	}
	rest, err := w.UnixConn.Write(b[n:])
	return n + rest, err
}
