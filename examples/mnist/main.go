// Command mnist trains a model on MNIST, alone or as one of the peers that elrun
// starts:
//
//	mnist --model cnn
//	elrun -n 4 mnist --model mlp --passes 5
//
// All peers train one model together: the same command with another number of peers
// gives the same losses but for rounding. At the end the accuracy on the test set is
// reported in the job's last line, which elrun prints, or mnist itself if it is alone.
//
// The exit status is 0 on success, 1 on a failure and 2 for a wrong command line.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
)

// The exit statuses other than 0.
const (
	statusFailed = 1
	statusUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// run carries out one command line and returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	exited := -1
	parser, err := kong.New(&o, kong.Name("mnist"), kong.Writers(stdout, stderr),
		kong.Description("Trains a model on MNIST, alone or with the other peers that elrun starts."),
		kong.Exit(func(status int) { exited = status }))
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
	if err := train(ctx, o, stdout); err != nil {
		fmt.Fprintf(stderr, "mnist: %s\n", reason(ctx, err))
		return statusFailed
	}
	return 0
}

// reason is one line that says why the training failed.
func reason(ctx context.Context, err error) string {
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
