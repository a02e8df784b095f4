// Package preempt waits for the notice that this machine is about to be taken away, as
// clouds give it to spot machines. The notice comes from a file, a command or the metadata
// service of a cloud.
package preempt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	filePeriod  = 500 * time.Millisecond // between two looks at a file
	cloudPeriod = 2 * time.Second        // between two requests to a metadata service
	retryPeriod = 5 * time.Second        // after a look that failed
)

// Source is where the notice comes from. It is not safe for concurrent use.
type Source struct {
	// look looks once, and may wait for the notice meanwhile. It returns what the notice says,
	// or "" if there is none yet.
	look  func(ctx context.Context) (string, error)
	pause time.Duration // between two looks that did not fail
}

// Parse returns the source that text names:
//
//	aws, gcp, azure  the metadata service of that cloud
//	FILE             an absolute path without spaces and shell syntax, where no file is yet;
//	                 the notice comes when it appears
//	anything else    a shell command, which ends with status 0 when the notice comes
//
// An absolute path of a file that is there must be executable, and is a command then.
func Parse(text string) (*Source, error) {
	if look := cloud(text, clouds()[text]); look != nil {
		return &Source{look, cloudPeriod}, nil
	}
	switch {
	case strings.TrimSpace(text) == "":
		return nil, errors.New("no command and no file given")
	case !filepath.IsAbs(text) || strings.ContainsAny(text, " \t\r\n\"'`$&|;<>()*?[]{}#~!\\"):
		return &Source{command(text).run, retryPeriod}, nil
	}
	info, err := os.Stat(text)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Source{file(text).look, filePeriod}, nil
	case err != nil:
		return nil, err
	case info.Mode().IsRegular() && info.Mode()&0o111 != 0:
		return &Source{command(text).run, retryPeriod}, nil
	}
	return nil, fmt.Errorf("%s is there already, and no program: remove it, or name a command", text)
}

// Wait waits for the notice and returns what it says, not "". Looks that fail are made again,
// and each different error is reported once. The only error is the cause of ctx's end.
func (s *Source) Wait(ctx context.Context, report func(error)) (string, error) {
	told := make(map[string]bool)
	for {
		text, err := s.look(ctx)
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if text != "" {
			return text, nil
		}
		pause := s.pause
		if err != nil {
			pause = retryPeriod
		}
		if err != nil && !told[err.Error()] && len(told) < maxTold {
			told[err.Error()] = true
			report(err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return "", context.Cause(ctx)
		}
	}
}

// maxTold is how many different errors are reported.
const maxTold = 20

// file is the path of a file that is the notice.
type file string

func (f file) look(context.Context) (string, error) {
	_, err := os.Stat(string(f))
	switch {
	case err == nil:
		return string(f), nil
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	}
	return "", err
}
