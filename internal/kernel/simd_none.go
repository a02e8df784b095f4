//go:build !amd64 || purego

package kernel

import "github.com/elrun/elrun/dtype"

// Without assembly these functions return false, and the loops in Go do the work.

func levelHere() level { return plain }

func foldVectors[T dtype.Number](level, operation, []T, []T, []T) bool { return false }

func divideVectors[T dtype.Number](level, []T, int) bool { return false }

func sumVectors[T dtype.Number](level, [][]T, [][]T, int) bool { return false }

func copyVectors(level, *Copying, []byte, []byte) bool { return false }

func finiteVectors(_ level, v []float32) ([]float32, bool) { return v, true }

func scaleVectors(_ level, v []float32, _ float32) ([]float32, bool) { return v, true }
