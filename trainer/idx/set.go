package idx

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Set is a data set of images with labels. It is safe for concurrent use, as
// nothing changes it.
type Set struct {
	*Images
	Labels []byte // one per image
}

// Load reads name-images-idx3-ubyte and name-labels-idx1-ubyte, with or without
// .gz, from the folder dir. MNIST calls its parts "train" and "t10k".
func Load(dir, name string, classes int) (*Set, error) {
	imagePath, err := find(dir, name+"-images-idx3-ubyte")
	if err != nil {
		return nil, err
	}
	labelPath, err := find(dir, name+"-labels-idx1-ubyte")
	if err != nil {
		return nil, err
	}
	images, err := ReadImages(imagePath)
	if err != nil {
		return nil, err
	}
	labels, err := ReadLabels(labelPath, classes)
	if err != nil {
		return nil, err
	}
	if images.Count != len(labels) {
		return nil, fmt.Errorf("idx: %s has %d images, %s %d labels: %w", imagePath, images.Count, labelPath, len(labels), ErrFormat)
	}
	return &Set{images, labels}, nil
}

// find returns the path of name in dir, plain or else with .gz.
func find(dir, name string) (string, error) {
	path := filepath.Join(dir, name)
	for _, p := range []string{path, path + ".gz"} {
		_, err := os.Stat(p)
		if err == nil {
			return p, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("idx: %w", err)
		}
	}
	return "", fmt.Errorf("idx: neither %s nor %s.gz: %w", path, name, fs.ErrNotExist)
}

// Len returns the number of images.
func (s *Set) Len() int { return s.Count }

// Sample writes the pixels of image i, scaled to [0, 1], to dst, which has Rows *
// Cols elements, and returns the label.
func (s *Set) Sample(dst []float32, i int) int {
	size := s.Rows * s.Cols
	pixels := s.Pixels[i*size : (i+1)*size]
	dst = dst[:len(pixels)]
	for j, p := range pixels {
		dst[j] = float32(p) * (1.0 / 255)
	}
	return int(s.Labels[i])
}
