// Package netwatch reports that the addresses or interfaces of this host have changed: a cable was
// pulled, a DHCP lease ended, a second network came up.
//
//	w, err := netwatch.Open()
//	defer w.Close()
//	for range w.Changes() {
//		// read net.InterfaceAddrs again
//	}
//
// A Watcher reports that there was a change, and does not say what has changed. Users compare the
// present addresses with the previous addresses, so that a lost message does no harm. On Linux the
// kernel reports changes by rtnetlink (RFC 3549) within a millisecond, and an idle Watcher costs
// nothing. On other systems Open returns an error that wraps errors.ErrUnsupported.
package netwatch

// Watcher receives the kernel's reports until Close.
type Watcher struct {
	// changes has room for one value, which reports one or more changes.
	changes chan struct{}
	stop    func() error  // ends the reader goroutine
	done    chan struct{} // closed when the reader goroutine has ended
}

// Changes returns a channel that gets a value after one or more changes since the last received
// value. Close closes the channel.
func (w *Watcher) Changes() <-chan struct{} { return w.changes }

// Close ends the Watcher, closes the channel and waits for the reader goroutine.
func (w *Watcher) Close() error {
	err := w.stop()
	<-w.done
	return err
}

// note records a change. If the channel has a value already, this value reports the new change as
// well.
func (w *Watcher) note() {
	select {
	case w.changes <- struct{}{}:
	default:
	}
}
