// Package preempt waits for the notice that this machine is about to be preempted. Clouds send such
// a notice to spot machines. The notice comes from a file, a command or the metadata service of a
// cloud.
package preempt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/elrun/elrun/internal/pause"
)

const (
	filePeriod  = 500 * time.Millisecond // interval of checks of a file
	cloudPeriod = 2 * time.Second        // interval of requests to a metadata service
	retryPeriod = 5 * time.Second        // pause after a failed poll
)

// Source is a source of the preemption notice. It is not safe for concurrent use.
type Source struct {
	// poll checks once for the notice. The check may include a wait for the notice. It returns the
	// text of the notice, or "" if there is none yet.
	poll  func(ctx context.Context) (string, error)
	pause time.Duration // pause between two polls without an error
}

// Parse returns the source for text:
//
//	aws, gcp, azure  the metadata service of that cloud
//	FILE             an absolute path without spaces and shell syntax, where no file exists yet;
//	                 the notice is the appearance of the file
//	anything else    a shell command, which ends with status 0 when the notice comes
//
// The absolute path of an existing file is a command, and the file must be executable.
func Parse(text string) (*Source, error) {
	if look := cloud(text, clouds()[text]); look != nil {
		return &Source{look, cloudPeriod}, nil
	}
	switch {
	case strings.TrimSpace(text) == "":
		return nil, errors.New("neither a file nor a command given: name one of them, or aws, gcp or azure")
	case !filepath.IsAbs(text) || strings.ContainsAny(text, " \t\r\n\"'`$&|;<>()*?[]{}#~!\\"):
		return &Source{command(text).run, retryPeriod}, nil
	}
	// A path: the kind of file decides.
	info, err := os.Stat(text)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &Source{file(text).poll, filePeriod}, nil
	case err != nil:
		return nil, err
	case info.Mode().IsRegular() && info.Mode()&0o111 != 0:
		return &Source{command(text).run, retryPeriod}, nil
	}
	return nil, fmt.Errorf("%s exists already and is not executable: remove it, or name a command", text)
}

// clouds returns the metadata service of each cloud by the cloud's name.
func clouds() map[string]*metadata {
	// Use no proxy: these addresses belong to this machine, and a proxy would answer for another
	// machine.
	client := &http.Client{Transport: &http.Transport{Proxy: nil, MaxIdleConns: 1, IdleConnTimeout: time.Minute}}
	return map[string]*metadata{
		"aws":   {"http://169.254.169.254", client},
		"gcp":   {"http://metadata.google.internal", client},
		"azure": {"http://169.254.169.254", client},
	}
}

// cloud returns the function that asks a cloud's metadata service for the notice, or nil for an
// unknown cloud.
func cloud(name string, m *metadata) func(context.Context) (string, error) {
	switch name {
	case "aws":
		return (&aws{metadata: m}).poll
	case "gcp":
		return (&gcp{metadata: m, etag: "NONE"}).poll
	case "azure":
		return (&azure{metadata: m}).poll
	}
	return nil
}

// Wait waits for the notice and returns its text, which is not empty. After an error it polls
// again, and calls report once for each different error. The only error that it returns is the
// cause of ctx's end.
func (s *Source) Wait(ctx context.Context, report func(error)) (string, error) {
	// A poll that fails every few seconds would otherwise fill the log.
	told := make(map[string]bool)
	for {
		text, err := s.poll(ctx)
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if text != "" {
			return text, nil
		}
		wait := s.pause
		if err != nil {
			wait = retryPeriod
		}
		if err != nil && !told[err.Error()] && len(told) < maxReported {
			told[err.Error()] = true
			report(err)
		}
		if err := pause.For(ctx, wait); err != nil {
			return "", err
		}
	}
}

// maxReported bounds the number of different errors that are reported.
const maxReported = 20

// file is the path of a file whose appearance is the notice.
type file string

// poll returns the path if the file exists, or "".
func (f file) poll(context.Context) (string, error) {
	_, err := os.Stat(string(f))
	switch {
	case err == nil:
		return string(f), nil
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	}
	return "", err
}
