package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
	"github.com/elrun/elrun/trainer/remote"
)

// sidecarCommand is the hidden command sidecar: the peer of a program in another language, which has
// started it and shares memory with it.
type sidecarCommand struct {
	Program    int `arg:"" help:"Process ID of the program."`
	Connection int `arg:"" help:"Descriptor of the connection with the program."`
	Memory     int `arg:"" help:"Descriptor of the memory."`
	Bytes      int `arg:"" help:"Length of the memory."`
	Lock       int `arg:"" help:"Descriptor of the lock that the program holds, or -1 for none."`
}

// Run takes part in the job until the program's training has ended. The program reports errors.
func (s *sidecarCommand) Run(ctx context.Context, t *terminal) error {
	sidecar, err := launch.NewSidecar(s.Program)
	if err != nil {
		return fmt.Errorf("sidecar: %w", err)
	}
	defer sidecar.Close()
	for _, fd := range []int{s.Connection, s.Memory} {
		unix.CloseOnExec(fd)
	}
	if s.Lock >= 0 {
		unix.CloseOnExec(s.Lock)
		if err := sidecar.Watch(os.NewFile(uintptr(s.Lock), "the lock of the program")); err != nil {
			return fmt.Errorf("sidecar: %w", err)
		}
	}
	if err := unix.SetNonblock(s.Connection, true); err != nil {
		return fmt.Errorf("sidecar: descriptor %d: %w", s.Connection, err)
	}
	conn := os.NewFile(uintptr(s.Connection), "the connection with the program")
	defer conn.Close()
	file := os.NewFile(uintptr(s.Memory), "the memory of the program")
	memory, err := sidecar.Map(file, s.Bytes)
	if errors.Is(err, errors.ErrUnsupported) {
		memory, err = remote.Map(file, s.Bytes)
	}
	if err != nil {
		return fmt.Errorf("sidecar: %w", err)
	}
	_ = file.Close() // the mapping stays
	open := func(ctx context.Context) (*elastic.Group, error) { return launch.InitFor(ctx, sidecar) }
	log := func(line string) { fmt.Fprintln(t.stderr, "elrun:", line) }
	peer := remote.Peer{Open: open, Ending: sidecar.Close, Computing: sidecar.Computing, Busy: sidecar.Busy, Fail: sidecar.Fail, Log: log, Release: release}
	if err := remote.Serve(ctx, conn, memory, peer); err != nil {
		return exitStatus(statusFailed)
	}
	return nil
}
