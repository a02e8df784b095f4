package npy

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/elrun/elrun/trainer/internal/mmap"
)

// Files says where a data set is.
type Files struct {
	Inputs  string // path of an array; each row is the inputs of a sample
	Labels  string // path of an array of integers, one for each sample
	Classes int    // labels are 0 to Classes-1
	// Scale is what inputs are multiplied with: 1.0/255 makes bytes numbers from 0 to 1.
	// 0 means 1.
	Scale float32
}

// Set is a data set of vectors with labels. It is safe for concurrent use.
type Set struct {
	inputs, labels *Array
	scale          float32
	failure        mmap.Failure
}

// Open opens a data set. All labels are looked at, no inputs are. The caller has to close
// the set when nobody reads it any more.
func Open(files Files) (*Set, error) {
	inputs, err := OpenArray(files.Inputs)
	if err != nil {
		return nil, err
	}
	labels, err := OpenArray(files.Labels)
	if err != nil {
		return nil, errors.Join(err, inputs.Close())
	}
	s := &Set{inputs: inputs, labels: labels, scale: files.Scale}
	if s.scale == 0 {
		s.scale = 1
	}
	if err := s.check(files.Classes); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// check wants a label below classes for each sample.
func (s *Set) check(classes int) error {
	l := s.labels
	switch {
	case !l.kind.integers():
		return fmt.Errorf("npy: labels in %s are of type %s, want integers; save a.astype('<i8'): %w", l.path, l.Type, ErrFormat)
	case l.Len() > 0 && l.Size() != 1:
		return fmt.Errorf("npy: labels in %s have the shape %v, want one for each sample; save a.argmax(1) if these are scores: %w", l.path, l.Shape, ErrFormat)
	case l.Len() != s.inputs.Len():
		return fmt.Errorf("npy: %s has %d samples, %s %d labels: %w", s.inputs.path, s.inputs.Len(), l.path, l.Len(), ErrFormat)
	}
	// From the file, so that the labels do not become part of this process yet.
	all, b := l.rows.All(), make([]byte, block)
	for i := 0; i < l.Len(); {
		n, err := io.ReadFull(all, b[:min(block, (l.Len()-i)*l.kind.size)])
		if err != nil {
			return fmt.Errorf("npy: read the labels in %s: %w", l.path, err)
		}
		for at := 0; at < n; at += l.kind.size {
			if label := l.kind.integer(b[at:][:l.kind.size]); label < 0 || label >= int64(classes) {
				return fmt.Errorf("npy: label %d in %s is %d, but there are %d classes: %w", i, l.path, label, classes, ErrFormat)
			}
			i++
		}
	}
	return nil
}

// Len returns the number of samples.
func (s *Set) Len() int { return s.inputs.Len() }

// Size returns the number of inputs of a sample.
func (s *Set) Size() int { return s.inputs.Size() }

// Shape returns the shape of the inputs of one sample; it is empty if that is a number.
func (s *Set) Shape() []int { return s.inputs.Shape[1:] }

// Sample writes the inputs of sample i, scaled, to dst, which has Size elements, and
// returns the label. It panics if there is no sample i. If a file cannot be read any more
// it returns -1, and Err says why.
func (s *Set) Sample(dst []float32, i int) int {
	if err := s.inputs.Row(dst, i); err != nil {
		s.failure.Note(err)
		return -1
	}
	if s.scale != 1 {
		for j := range dst[:s.Size()] {
			dst[j] *= s.scale
		}
	}
	label, err := s.labels.integer(i)
	if err != nil {
		s.failure.Note(err)
		return -1
	}
	return int(label)
}

// Err returns the first error of Sample, which names the file, or nil.
func (s *Set) Err() error { return s.failure.Err() }

// Prefetch has the given samples read ahead; those that do not exist are passed over. It
// waits for nothing but its turn at the disk, until ctx ends.
func (s *Set) Prefetch(ctx context.Context, samples []int) {
	s.inputs.rows.Prefetch(ctx, samples)
	s.labels.rows.Prefetch(ctx, samples)
}

// WriteTo writes the bytes of all inputs and then of all labels to w, and returns how
// many these were. It leaves the mappings alone.
func (s *Set) WriteTo(w io.Writer) (int64, error) {
	n, err := s.inputs.rows.WriteTo(w)
	if err == nil {
		var m int64
		m, err = s.labels.rows.WriteTo(w)
		n += m
	}
	if err != nil {
		return n, fmt.Errorf("npy: read all of a set: %w", err)
	}
	return n, nil
}

// Close ends the mappings. Samples cannot be read afterwards.
func (s *Set) Close() error { return errors.Join(s.inputs.Close(), s.labels.Close()) }
