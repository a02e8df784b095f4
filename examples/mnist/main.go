// Command mnist trains a model on MNIST, alone or as one of the peers that elrun starts:
//
//	mnist --model cnn
//	elrun -n 4 mnist --model mlp --passes 5
//
// All peers train one model together. With another number of peers the same command has the same
// losses except for rounding, and with --exact the same weights to the bit. At the end elrun, or
// mnist itself if it runs alone, prints the accuracy on the test set as the last line.
//
// The exit status is 0 on success and for a peer that has left the job on request (SIGTERM), 1 on a
// failure, 2 for a wrong command line, and 75 if too few peers were left for a quorum.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
)

// Exit statuses other than 0.
const (
	statusFailed = 1
	statusUsage  = 2
	statusQuorum = 75
)

func main() {
	signals := []os.Signal{os.Interrupt}
	if !launch.Launched() {
		// Under elrun the group handles SIGTERM and leaves. Without elrun SIGTERM ends the
		// training.
		signals = append(signals, syscall.SIGTERM)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run executes a command line and returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	exited := -1
	parser, err := kong.New(&o, kong.Name("mnist"), kong.Writers(stdout, stderr),
		kong.Description("Trains a model on MNIST, alone or with the other peers that elrun starts."),
		kong.KindMapper(reflect.String, kong.MapperFunc(decodeString)), kong.Exit(func(status int) { exited = status }))
	if err != nil {
		fmt.Fprintf(stderr, "mnist: %v\n", err)
		return statusFailed
	}
	_, err = parser.Parse(args)
	if exited >= 0 { // --help
		return exited
	}
	if err == nil {
		err = o.check()
	}
	if err != nil {
		fmt.Fprintf(stderr, "mnist: %v\nusage: mnist [flags]; mnist --help shows all\n", err)
		return statusUsage
	}
	err = train(ctx, o, stdout, stderr)
	status := statusOf(err)
	if status != 0 {
		fmt.Fprintf(stderr, "mnist: %s\n", reason(ctx, err))
	}
	return status
}

// decodeString decodes a flag or an argument to its own bytes. The decoder of kong passes strings
// through JSON, which replaces bytes that are not UTF-8, as in old names of files, by U+FFFD.
func decodeString(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("string")
	if err == nil {
		target.SetString(fmt.Sprint(token.Value))
	}
	return err
}

// statusOf returns the exit status for the outcome of the training.
func statusOf(err error) int {
	switch {
	case err == nil, errors.Is(err, elastic.ErrLeft), errors.Is(err, elastic.ErrFinished):
		return 0
	case errors.Is(err, elastic.ErrQuorum):
		return statusQuorum
	}
	return statusFailed
}

// reason returns one line with the cause of a failed training.
func reason(ctx context.Context, err error) string {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
