package proc

import (
	"errors"
	"syscall"

	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch/internal/wire"
	"github.com/elrun/elrun/launch/spec"
)

// Process is a peer's process, on this host or through an agent on another host.
//
// It may be a shell or another wrapper with the peer as its child.
type Process interface {
	// Watch passes the messages, the output and the end of the process to its receiver. It returns
	// when the process and its output have ended.
	Watch()
	// Send queues a message for the writer. It does not block on a peer that does not read, for
	// example because it is stopped.
	Send(m wire.Message)
	// Signal sends sig to the process group. After the end of the process it does nothing.
	Signal(sig syscall.Signal)
	// Ask sends sig to the peer alone: a shell that started the peer has to go on after the peer's
	// end. If the peer is unknown or has ended, the whole process group gets sig. A stopped process
	// is continued, because it could not handle the signal.
	Ask(sig syscall.Signal)
	// Input passes on a part of the standard input, or its end if the part is empty. It returns when
	// the process has taken the part. An error means that the process takes no more. Unlike the
	// other methods it may be called from any goroutine, by one at a time.
	Input(part []byte) error
	// SetPID records the process ID of the peer.
	SetPID(pid int)
	// PID returns the process ID of the peer, or of a wrapper that started the peer; 0 if unknown.
	PID() int
	// Look reports whether the process is stopped by a signal. If it is on another host, now is false,
	// and the receiver's Halted is called later. An agent looks at its processes by itself, too.
	Look() (r wire.HaltReport, now bool)
}

// Receiver gets the output, the messages and the end of a process. Calls about the same output
// stream are not concurrent, and neither are the other calls. The end comes after all messages;
// output may still come after the end.
type Receiver interface {
	Output(t wire.Target, part []byte) // the caller owns part
	OutputEnd(t wire.Target)
	Message(m wire.Message, pid int) // pid is 0 if the sender is not known
	ProtocolError(err error)         // the process violates the protocol
	Halted(r wire.HaltReport)
	// Dying reports that the program that said hello by an ID has ended, before its status is known.
	// It comes after that hello, but perhaps before later messages. It may be missing.
	Dying(id elastic.ID)
	// Remains gives the calls of a process that has failed, where its system keeps them. It comes before the end.
	Remains(r flight.Record)
	Ended(e spec.Exit)
}

// ErrInputClosed reports that a process takes no input any more.
var ErrInputClosed = errors.New("standard input is closed")
