package say

import (
	"bytes"
	"io"
	"os"
	"sync"
)

// LineWriter writes whole lines only. If a write fails within a line, for example on a full disk,
// the partial line is removed; if that is impossible, a line end is written before the next line.
// It is safe for concurrent use.
type LineWriter struct {
	W io.Writer

	// mu guards torn, and is held during a write, so that lines do not mix.
	mu   sync.Mutex
	torn bool // the last line is unfinished
}

// Write writes b, which must hold whole lines. On an error n is the length of the lines that were
// written completely.
func (l *LineWriter) Write(b []byte) (n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.torn {
		if _, err := l.W.Write([]byte("\n")); err != nil {
			return 0, err
		}
		l.torn = false
	}
	n, err = l.W.Write(b)
	if err == nil {
		return n, nil
	}
	// n bytes have been written; they may end with a part of a line.
	whole := bytes.LastIndexByte(b[:n], '\n') + 1
	l.torn = n > whole && !truncateTail(l.W, int64(n-whole))
	return whole, err
}

// truncateTail truncates a regular file by its last n bytes. It returns false if it cannot
// truncate: for pipes and terminals, and if another process has appended to the file meanwhile.
func truncateTail(w io.Writer, n int64) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	end, err := f.Seek(0, io.SeekCurrent)
	if err != nil || end != info.Size() || end < n || f.Truncate(end-n) != nil {
		return false
	}
	_, err = f.Seek(end-n, io.SeekStart)
	return err == nil
}
