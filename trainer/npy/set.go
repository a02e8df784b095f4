package npy

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/elrun/elrun/trainer/internal/mmap"
)

// Files names the files of a data set.
type Files struct {
	Inputs  string // path of an array whose rows are the samples' inputs
	Labels  string // path of an array of integers, one per sample
	Classes int    // labels are 0 to Classes-1
	// Scale is a factor for all inputs; 0 means 1. With 1.0/255 bytes become numbers from 0 to 1.
	Scale float32
}

// Set is a data set of vectors with labels. It is safe for concurrent use until Close.
type Set struct {
	inputs, labels *Array
	scale          float32 // factor of inputs, never 0
	failure        mmap.Failure
}

// Open opens a data set. It checks all labels, but reads no inputs. The caller closes the set
// when its last user has finished.
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

// check returns an error unless each sample has a label and all labels are below classes.
func (s *Set) check(classes int) error {
	l := s.labels
	switch {
	case !l.kind.integers():
		return fmt.Errorf("npy: labels in %s are of type %s, want integers; save a.astype('<i8'): %w", l.path, l.Type, ErrFormat)
	case l.Len() > 0 && l.Size() != 1:
		return fmt.Errorf("npy: labels in %s have the shape %v, want one for each sample; save a.argmax(1) if these are scores: %w", l.path, l.Shape, ErrFormat)
	case l.Len() != s.inputs.Len():
		return fmt.Errorf("npy: %s has %d samples but %s has %d labels: %w", s.inputs.path, s.inputs.Len(), l.path, l.Len(), ErrFormat)
	}
	// Read from the file and not from the mapping: pages of the mapping would count as memory of
	// this process.
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

// Shape returns the shape of one sample's inputs; empty if each sample is a single number.
func (s *Set) Shape() []int { return s.inputs.Shape[1:] }

// Sample writes the inputs of sample i, scaled, to dst, which has at least Size elements, and
// returns its label. It panics if there is no sample i. If reading a file fails it returns -1,
// and Err returns the cause.
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

// Err returns the first error of Sample, which names the file, or nil. It is safe for concurrent
// use.
func (s *Set) Err() error { return s.failure.Err() }

// Prefetch starts reading the given samples ahead, and ignores indices out of range. It may wait
// for the queue of the disk, at most until ctx ends, but not for the data.
func (s *Set) Prefetch(ctx context.Context, samples []int) {
	s.inputs.rows.Prefetch(ctx, samples)
	s.labels.rows.Prefetch(ctx, samples)
}

// WriteTo writes the bytes of all inputs and then of all labels to w, and returns their number. It
// reads the files and not the mappings, whose pages would count as memory of this process.
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

// Close unmaps the files. No other method may be in progress, or be called afterwards.
func (s *Set) Close() error { return errors.Join(s.inputs.Close(), s.labels.Close()) }
