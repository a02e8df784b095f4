package launch

import (
	"slices"
	"strings"
	"testing"
)

func TestParseSockets(t *testing.T) {
	table := `Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 11 @elrun/7/b/0.20
0000000000000000: 00000003 00000000 00000000 0001 03 12 @elrun/7/b/0.20
0000000000000000: 00000002 00000000 00010000 0001 01 13 @elrun/7/a/1.10
0000000000000000: 00000002 00000000 00010000 0001 01 14 @elrun/77/c/1.10
0000000000000000: 00000002 00000000 00010000 0001 01 15 @elrun/7/bad
0000000000000000: 00000002 00000000 00010000 0001 01 16 /run/elrun/7/d/0.1
0000000000000000: 00000002 00000000 00010000 0001 01 17
0000000000000000: 00000002
`
	got, err := parseSockets(strings.NewReader(table), "@elrun/7/")
	if want := []socketName{{"a", 1, 10}, {"b", 0, 20}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func FuzzParseSockets(f *testing.F) {
	f.Add("0: 2 0 1 1 1 1 @elrun/7/a/1.10\n")
	f.Fuzz(func(t *testing.T, table string) {
		names, _ := parseSockets(strings.NewReader(table), "@elrun/7/")
		for _, n := range names {
			if !strings.Contains(table, n.String()) {
				t.Errorf("%v is not in %q", n, table)
			}
		}
	})
}
