package scalars

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/elrun/elrun/internal/private"
)

// table writes rows into a file of comma-separated values, with the names of its columns in the first line. A row with
// a new name adds a column: the file is written anew, so that all rows have all columns.
type table struct {
	path    string
	columns []string
	file    *os.File
	to      *bufio.Writer
	rows    *csv.Writer
}

// maxColumns bounds the columns. Figures with further names are not in the table.
const maxColumns = 256

// fixed are the columns that every table has. The times are RFC 3339.
func fixed() []string { return []string{"step", "time"} }

// begin begins a table in a new file. A file of an earlier run is renamed: its time comes into its name.
func (t *table) begin(path string) error {
	if old, err := os.Stat(path); err == nil {
		ext := filepath.Ext(path)
		kept := fmt.Sprintf("%s-%d%s", strings.TrimSuffix(path, ext), old.ModTime().UnixMilli(), ext)
		if err := os.Rename(path, kept); err != nil {
			return err
		}
	}
	t.path, t.columns = path, fixed()
	return t.create(path)
}

// create makes the file and writes its first line.
func (t *table) create(path string) error {
	file, err := private.Create(path)
	if err != nil {
		return err
	}
	t.file, t.to = file, bufio.NewWriter(file)
	t.rows = csv.NewWriter(t.to)
	return t.rows.Write(t.columns)
}

// add adds a row. names are sorted.
func (t *table) add(r Row, names []string) error {
	var fresh []string
	for _, name := range names {
		if !slices.Contains(t.columns, name) && len(t.columns)+len(fresh) < maxColumns {
			fresh = append(fresh, name)
		}
	}
	if fresh != nil {
		if err := t.widen(fresh); err != nil {
			return fmt.Errorf("add the columns %q: %w", fresh, err)
		}
	}
	cells := []string{strconv.FormatInt(r.Step, 10), r.Time.UTC().Format("2006-01-02T15:04:05.000Z")}
	for _, name := range t.columns[len(cells):] {
		cell := ""
		if x, ok := r.Values[name]; ok {
			cell = strconv.FormatFloat(x, 'g', 9, 64)
		}
		cells = append(cells, cell)
	}
	return t.rows.Write(cells)
}

// widen writes the table anew, with more columns.
func (t *table) widen(fresh []string) error {
	if err := t.close(); err != nil {
		return err
	}
	before, err := os.Open(t.path)
	if err != nil {
		return err
	}
	defer before.Close()
	t.columns = append(t.columns, fresh...)
	next := filepath.Join(filepath.Dir(t.path), ".next.csv")
	if err := t.create(next); err != nil {
		return err
	}
	in := csv.NewReader(bufio.NewReader(before))
	for line := 0; ; line++ {
		cells, err := in.Read()
		if errors.Is(err, io.EOF) {
			return os.Rename(next, t.path)
		}
		if err != nil {
			return err
		}
		if line > 0 {
			if err := t.rows.Write(append(cells, make([]string, len(fresh))...)); err != nil {
				return err
			}
		}
	}
}

// flush writes what is in buffers.
func (t *table) flush() error {
	t.rows.Flush()
	return errors.Join(t.rows.Error(), t.to.Flush())
}

// close flushes and closes the file.
func (t *table) close() error { return errors.Join(t.flush(), t.file.Close()) }
