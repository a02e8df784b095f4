package shm

import "testing"

// cacheSize reads the size in the form that the kernel writes. It returns 0 for any other text.
func TestCacheSize(t *testing.T) {
	for text, want := range map[string]int{
		"48K\n": 48 << 10, "491520K\n": 480 << 20, "2048K": 2 << 20,
		"": 0, "K": 0, "-1K": 0, "48": 0, "48M\n": 0, "99999999999999999999K": 0, "9999999999999K": 0,
	} {
		if got := cacheSize([]byte(text)); got != want {
			t.Errorf("%q: %d bytes, want %d", text, got, want)
		}
	}
}

// Long results are written by non-temporal stores. The shortest such result is a part of the cache, and never short.
func TestStreamFrom(t *testing.T) {
	for cache, want := range map[int]int{0: 32 << 20, 1 << 20: 32 << 20, 480 << 20: 60 << 20} {
		if got := nonTemporalFrom(cache); got != want {
			t.Errorf("cache of %d bytes: from %d bytes, want %d", cache, got, want)
		}
	}
}
