package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/elrun/elrun/event/timeline"
)

// pause is the time between two plain frames, of which each is below the one before.
const pause = 5 * time.Second

// Output is what Print writes.
type Output struct {
	JSON  bool // snapshots, one a line, or the list of jobs
	Once  bool // one frame or snapshot, in place of all until the job ends
	Width int  // of a frame, in cells
	// Height is the least number of lines for which a frame is made. It grows with the peers.
	Height int
}

// errOnce ends the snapshots of a job after the first one.
var errOnce = errors.New("one is enough")

// Print writes frames or snapshots of a job to a writer that is no terminal, or one without movements of its cursor. job is the full
// name of the job, or "" for the list of jobs, which is written once. Print returns when the job has ended, or with the cause of
// the end of ctx, or with an error if nothing is known of the job any more or the writer fails.
func Print(ctx context.Context, w io.Writer, source Source, job string, m *Model, o Output) error {
	m.Still = true
	if job == "" {
		return o.list(ctx, w, source, m)
	}
	m.Open(job)
	var written time.Time // of the last frame
	err := follow(ctx, source, job, func(s timeline.Snapshot) error {
		var err error
		at := time.Now()
		m.Show(s, at)
		switch {
		case o.JSON:
			err = encode(w, s)
		case at.Sub(written) >= pause:
			written = at
			err = o.frame(w, m)
		}
		if err == nil && o.Once {
			err = errOnce
		}
		return err
	})
	var e *errEnded
	switch {
	case errors.Is(err, errOnce):
		return nil
	case !errors.As(err, &e):
		return err
	case o.JSON:
		return nil
	}
	m.End(endOf(err))
	return o.frame(w, m)
}

// list writes the list of jobs.
func (o Output) list(ctx context.Context, w io.Writer, source Source, m *Model) error {
	jobs, err := source.Jobs(ctx)
	switch {
	case err != nil:
		return err
	case o.JSON:
		return encode(w, jobs)
	}
	m.Jobs(jobs, "")
	return o.frame(w, m)
}

// frame writes a frame that has room for all rows.
func (o Output) frame(w io.Writer, m *Model) error {
	const around = 12 // lines above and below the rows
	t, _ := m.rows(m.place)
	if _, err := io.WriteString(w, m.Frame(o.Width, max(o.Height, len(t.rows)+around)).Text()); err != nil {
		return fmt.Errorf("write the frame: %w", err)
	}
	return nil
}

// encode writes a line of JSON.
func encode(w io.Writer, v any) error {
	line, err := json.Marshal(v)
	if err == nil {
		_, err = w.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the snapshot: %w", err)
	}
	return nil
}
