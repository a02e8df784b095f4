//go:build !amd64 || purego

package product

func vectors(*tile, bool) bool { return false }
