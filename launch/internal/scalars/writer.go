package scalars

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/elrun/elrun/internal/private"
)

// Row has the figures of a step.
type Row struct {
	Time   time.Time
	Step   int64
	Values map[string]float64 // by name
}

// Writer writes rows into the files of a folder, until Close. It is not safe for concurrent use.
type Writer struct {
	table  table
	file   *os.File // for TensorBoard
	events eventFile
}

// Open begins the files of a run in a folder, which it makes if it is missing: steps.csv, and a file for TensorBoard, which
// shows all runs of a folder as one. now is in its name. The steps.csv of an earlier run stays under another name.
func Open(dir string, now time.Time) (*Writer, error) {
	if err := private.MkdirAll(dir); err != nil {
		return nil, err
	}
	w := &Writer{}
	if err := w.table.begin(filepath.Join(dir, "steps.csv")); err != nil {
		return nil, err
	}
	host, _ := os.Hostname() // it tells people where the file comes from; an unknown name stays empty
	file, err := private.Create(filepath.Join(dir, fmt.Sprintf("events.out.tfevents.%d.%s.%d", now.Unix(), filepath.Base(host), os.Getpid())))
	if err != nil {
		return nil, errors.Join(err, w.table.close())
	}
	w.file = file
	if err := w.events.begin(file, now); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// Add adds a row. After an error further rows may be incomplete.
func (w *Writer) Add(r Row) error {
	names := slices.Sorted(maps.Keys(r.Values))
	for _, name := range names {
		if err := w.events.scalar(r.Time, r.Step, name, r.Values[name]); err != nil {
			return err
		}
	}
	return w.table.add(r, names)
}

// Flush writes what is in buffers, so that others can read it.
func (w *Writer) Flush() error { return errors.Join(w.table.flush(), w.events.to.Flush()) }

// Close flushes and closes the files.
func (w *Writer) Close() error {
	return errors.Join(w.table.close(), w.events.to.Flush(), w.file.Close())
}
