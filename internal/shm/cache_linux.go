package shm

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// largestCache returns the size in bytes of the largest cache of this machine's first core, which
// other cores usually share; 0 if it is not known. nonTemporalFrom derives from this size which
// results are written by non-temporal stores.
func largestCache() int {
	files, _ := filepath.Glob("/sys/devices/system/cpu/cpu0/cache/index*/size")
	most := 0
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil {
			most = max(most, cacheSize(b))
		}
	}
	return most
}

// cacheSize parses a size as the kernel writes it: in KiB, followed by a K.
func cacheSize(b []byte) int {
	digits, found := bytes.CutSuffix(bytes.TrimSpace(b), []byte("K"))
	n, err := strconv.Atoi(string(digits))
	if !found || err != nil || n < 0 || n > 1<<30 {
		return 0
	}
	return n << 10
}
