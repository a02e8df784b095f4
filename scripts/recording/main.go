// Recording makes docs/recording.svg, the picture in the README. It shows a terminal in which a job
// trains while a peer is killed and another peer joins.
//
//	go run ./scripts/recording record docs/recording.txt                  runs the job with the programs in bin
//	go run ./scripts/recording draw docs/recording.txt docs/recording.svg
//
// The text has the lines of the terminal, each with its time. The drawing depends only on the text,
// and a test checks that the drawing is up to date. make recording runs both commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

// run executes the command line args, which does not include the name of the program.
func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "record":
		lines, err := record(ctx, "bin")
		if err != nil {
			return err
		}
		return os.WriteFile(args[1], format(lines), 0o644)
	case len(args) == 3 && args[0] == "draw":
		text, err := os.ReadFile(args[1])
		if err != nil {
			return err
		}
		lines, err := parse(text)
		if err != nil {
			return fmt.Errorf("%s: %w", args[1], err)
		}
		return os.WriteFile(args[2], draw(lines), 0o644)
	}
	return errors.New("usage: recording record TEXT, or recording draw TEXT SVG")
}
