package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// fromInput is the ticket that stands for the one on standard input.
	fromInput = "-"
	// fromFile begins the name of a file that has the ticket.
	fromFile = "@"
	// maxTicket is the longest text that is read for a ticket, in bytes. Those that elrun
	// makes have about a thousand.
	maxTicket = 64 << 10
	// pollPeriod is how often, in milliseconds, a wait for input looks whether it was
	// interrupted.
	pollPeriod = 100
)

// readTicket returns the ticket that an argument stands for: "-" for standard input, "@FILE"
// for the content of a file, and otherwise the argument itself. On the command line a
// ticket is visible to all users of the host, and it is all that one needs to join.
func readTicket(ctx context.Context, arg string, stdin *os.File) (string, error) {
	name, inFile := strings.CutPrefix(arg, fromFile)
	var b []byte
	var err error
	switch {
	case arg == fromInput:
		name = "standard input"
		b, err = readLimited(&patient{ctx, stdin})
	case inFile:
		b, err = readFile(name)
	default:
		return arg, nil
	}
	var op *os.PathError
	if errors.As(err, &op) {
		err = op.Err // without the name, which is told anyway
	}
	text := strings.TrimSpace(string(b))
	if err == nil && text == "" {
		err = errors.New("it is empty")
	}
	if err != nil {
		return "", fmt.Errorf("read the ticket from %s: %w", name, err)
	}
	return text, nil
}

// readFile reads a file that has a ticket.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readLimited(f)
}

// readLimited reads what may be a ticket, to the end.
func readLimited(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxTicket+1))
	if err == nil && len(b) > maxTicket {
		err = fmt.Errorf("more than %d bytes are no ticket", maxTicket)
	}
	return b, err
}

// patient reads from a terminal or pipe, until ctx ends: a read that has begun could not
// be broken off.
type patient struct {
	ctx  context.Context
	file *os.File
}

// Read waits for input and reads what there is of it.
func (p *patient) Read(b []byte) (int, error) {
	for p.ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(p.file.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, pollPeriod)
		switch {
		case n > 0: // input, its end, or an error, which Read will tell
			return p.file.Read(b)
		case err != nil && !errors.Is(err, unix.EINTR):
			return 0, fmt.Errorf("wait for input: %w", err)
		}
	}
	return 0, context.Cause(p.ctx)
}
