// Package netwatch tells when the addresses or the interfaces of this host change: a cable is
// pulled, a lease ends, a second network comes up.
//
//	w, err := netwatch.Open()
//	defer w.Close()
//	for range w.Changes() {
//		// look at net.InterfaceAddrs again
//	}
//
// It says that something has changed, not how: who acts on it compares what is with what was, and
// so needs no message that may have been lost. On Linux the kernel tells by rtnetlink (RFC 3549)
// within a millisecond, and an idle watcher costs nothing; elsewhere Open returns an error that
// wraps errors.ErrUnsupported.
package netwatch

// Watcher listens to the kernel until Close.
type Watcher struct {
	changes chan struct{}
	stop    func() error
	done    chan struct{} // closed when the reader has ended
}

// Changes returns a channel that gets a value after one or more changes since the last was
// taken, and is closed by Close.
func (w *Watcher) Changes() <-chan struct{} { return w.changes }

// Close ends the watching and waits for its goroutine.
func (w *Watcher) Close() error {
	err := w.stop()
	<-w.done
	return err
}

// note wakes who listens, unless that is about to look anyway.
func (w *Watcher) note() {
	select {
	case w.changes <- struct{}{}:
	default:
	}
}
