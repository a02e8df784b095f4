package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/elrun/elrun/internal/pause"
)

const (
	// fromInput is the argument for a ticket on standard input.
	fromInput = "-"
	// fromFile is the prefix of an argument that names a file with a ticket.
	fromFile = "@"
	// maxTicket is the maximum length of a ticket, in bytes. A ticket has about a hundred bytes.
	// The limit bounds the memory if the argument names a wrong file.
	maxTicket = 64 << 10
	// pollPeriod is the period, in milliseconds, at which a wait for input checks for
	// interruption.
	pollPeriod = 100
)

// readTicket returns the ticket of an argument: "-" means the ticket on standard input, "@FILE" the
// ticket in a file, and any other argument is the ticket itself. Standard input and a file hide the
// ticket from other users of the host, who could join with it.
func readTicket(ctx context.Context, arg string, stdin *os.File) (string, error) {
	name, inFile := strings.CutPrefix(arg, fromFile)
	var b []byte
	var err error
	switch {
	case arg == fromInput:
		name = "standard input"
		b, err = readLimited(&interruptibleReader{ctx, stdin})
	case inFile:
		b, err = readFile(name)
	default:
		return arg, nil
	}
	var op *os.PathError
	if errors.As(err, &op) {
		err = op.Err // the message below contains the name of the file
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

// readFile reads a file with a ticket or a key, up to maxTicket bytes.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readLimited(f)
}

// readLimited reads r to its end, up to maxTicket bytes.
func readLimited(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxTicket+1))
	if err == nil && len(b) > maxTicket {
		err = fmt.Errorf("it has more than %d bytes: name the file of a ticket or of a key", maxTicket)
	}
	return b, err
}

// interruptibleReader is a reader of a terminal or a pipe whose wait ends with ctx. A blocking
// read could not be interrupted.
type interruptibleReader struct {
	ctx  context.Context
	file *os.File
}

// Read implements io.Reader. It waits for input, its end, or the end of ctx.
func (i *interruptibleReader) Read(b []byte) (int, error) {
	for i.ctx.Err() == nil {
		// The kernel stops a process that reads its terminal in the background.
		group, err := unix.IoctlGetInt(int(i.file.Fd()), unix.TIOCGPGRP)
		if err == nil && group != unix.Getpgrp() {
			_ = pause.For(i.ctx, pollPeriod*time.Millisecond) // an error means that ctx has ended
			continue
		}
		// Poll has a time limit, because a read of a terminal cannot have a deadline.
		fds := []unix.PollFd{{Fd: int32(i.file.Fd()), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, pollPeriod)
		switch {
		case n > 0: // input, the end of the input, or an error, which Read returns
			return i.file.Read(b)
		case err != nil && !errors.Is(err, unix.EINTR):
			return 0, fmt.Errorf("wait for input: %w", err)
		}
	}
	return 0, context.Cause(i.ctx)
}
