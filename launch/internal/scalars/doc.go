// Package scalars writes the figures of a job over its steps into the files of a folder: for TensorBoard, and
// as a table of comma-separated values.
//
//	w, err := scalars.Open(dir, time.Now())
//	w.Add(row)
//	err = w.Close()
//
// A row has the figures of a step by name. The names in TensorBoard are those of the table.
package scalars
