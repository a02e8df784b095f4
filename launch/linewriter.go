package launch

import (
	"bytes"
	"io"
	"os"
	"sync"
)

// lineWriter writes whole lines only: what a failed write has left of a line, as on a full
// disk, is taken back, or ended before the next line where that is impossible. Safe for
// concurrent use.
type lineWriter struct {
	w io.Writer

	mu   sync.Mutex
	torn bool // the last line was not ended
}

// Write writes b, which holds whole lines. On an error n counts the bytes of the lines that
// were written whole.
func (l *lineWriter) Write(b []byte) (n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.torn {
		if _, err := l.w.Write([]byte("\n")); err != nil {
			return 0, err
		}
		l.torn = false
	}
	n, err = l.w.Write(b)
	if err == nil {
		return n, nil
	}
	whole := bytes.LastIndexByte(b[:n], '\n') + 1
	l.torn = n > whole && !takeBack(l.w, int64(n-whole))
	return whole, err
}

// takeBack removes the last n bytes from a regular file at whose end they are.
func takeBack(w io.Writer, n int64) bool {
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
