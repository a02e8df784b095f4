package idx_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/elrun/elrun/trainer/idx"
)

// anonymous returns how many bytes of anonymous memory are resident in this process.
func anonymous(t *testing.T) int {
	t.Helper()
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(status), "RssAnon:")
	kib := 0
	if _, err := fmt.Sscan(after, &kib); !found || err != nil {
		t.Fatalf("no RssAnon in %q (%v)", status, err)
	}
	return kib << 10
}

// sparse writes a data set with count images of side x side. Its files are sparse, so they need no disk space.
func sparse(t *testing.T, count, side int) string {
	t.Helper()
	dir := t.TempDir()
	for name, header := range map[string][]uint32{
		"train-images-idx3-ubyte": {0x803, uint32(count), uint32(side), uint32(side)},
		"train-labels-idx1-ubyte": {0x801, uint32(count)},
	} {
		var b []byte
		size := int64(count)
		for i, w := range header {
			b = binary.BigEndian.AppendUint32(b, w)
			if i > 1 {
				size *= int64(w)
			}
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, size+int64(len(b))); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A mapped set can be read completely without anonymous memory, because its pages belong to the file. A decoded set needs
// anonymous memory.
func TestMappedSetsTakeNoMemory(t *testing.T) {
	const count, side = 96, 512 // 24 MiB
	dir := sparse(t, count, side)
	pixels := make([]float32, side*side)
	grown := func(open func(dir, name string, classes int) (*idx.Set, error)) int {
		before := anonymous(t)
		set, err := open(dir, "train", 10)
		if err != nil {
			t.Fatal(err)
		}
		for i := range set.Len() {
			if label := set.Sample(pixels, i); label != 0 || pixels[side] != 0 {
				t.Fatalf("image %d: label %d, pixel %v", i, label, pixels[side])
			}
		}
		after := anonymous(t)
		if err := set.Close(); err != nil {
			t.Error(err)
		}
		return after - before
	}
	mapped, decoded := grown(idx.Open), grown(idx.Load)
	t.Logf("a set of %d bytes: %d bytes of memory if it is mapped, %d if it is decoded", count*side*side, mapped, decoded)
	if mapped > count*side*side/4 || decoded < count*side*side*3/4 {
		t.Errorf("memory grew by %d bytes for a mapped set, by %d for a decoded one of %d", mapped, decoded, count*side*side)
	}
}

// A mapped set may be larger than the limits for decoded sets, and larger than the memory.
func TestMappedSetsMayBeLarge(t *testing.T) {
	dir := sparse(t, 1<<11, 1<<10) // 2 GiB
	set, err := idx.Open(dir, "train", 10)
	if err != nil {
		t.Fatal(err)
	}
	defer set.Close()
	pixels := make([]float32, 1<<20)
	set.Prefetch(t.Context(), []int{1<<11 - 1})
	if label := set.Sample(pixels, 1<<11-1); label != 0 || set.Err() != nil {
		t.Errorf("label %d, error %v", label, set.Err())
	}
	if _, err := idx.Load(dir, "train", 10); err == nil || !strings.Contains(err.Error(), "limit for files in memory") {
		t.Errorf("decoded: error %v, want the limit", err)
	}
}
