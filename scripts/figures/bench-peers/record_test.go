package main

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	text := "a library warns\n" +
		`{"collective":"allreduce","n":2,"bytes":4,"us_p50":1.5,"wrong":0,"rss_anon":100,"algorithm":"shm"}` + "\n" +
		`[3] {"n":2,"bytes":1024,"us_p50":2,"wrong":7,"single_copy":"cma","readable":true}` + "\n"
	got, err := parse(strings.NewReader(text))
	want := []result{
		{N: 2, Bytes: 4, P50: 1.5, RSSAnon: 100, Algorithm: "shm"},
		{N: 2, Bytes: 1024, P50: 2, Wrong: 7, Copy: "cma", Readable: true},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, bad := range []string{`{"n":2`, `{}`, `{"n":2,"bytes":4}`, `{"n":0,"bytes":4,"us_p50":1}`, `{"n":2,"bytes":"4","us_p50":1}`} {
		if got, err := parse(strings.NewReader(bad)); err == nil {
			t.Errorf("%s: got %+v, want an error", bad, got)
		}
	}
}

// A study is the same after it was saved and loaded. The file has one line for each record.
func TestSaveAndLoad(t *testing.T) {
	name := filepath.Join(t.TempDir(), "benchmarks", "figures.json")
	s, err := load(name)
	if err != nil || len(s.Records) != 0 || s.Missing == nil {
		t.Fatalf("no file: %+v, %v", s, err)
	}
	s = sample()
	s.Missing["Gloo"] = "not here"
	if err := s.save(name); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), `"side"`); n != len(s.Records) || strings.Count(string(text), "\n") < n {
		t.Errorf("%d records in:\n%s", n, text)
	}
	got, err := load(name)
	if err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("got %+v, %v, want %+v", got, err, s)
	}
	if err := os.WriteFile(name, text[:len(text)/2], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := load(name); err == nil || !strings.Contains(err.Error(), name) {
		t.Errorf("half a file: %v", err)
	}
}

func TestAddAndDrop(t *testing.T) {
	s := &study{}
	good := []result{{N: 2, Bytes: 8, P50: 3}, {N: 4, Bytes: 4, P50: 5}}
	for round := range 2 {
		if err := s.add(partHost, elrunHeap, round, good); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.add(partTwo, elrunSealed, 0, good[:1]); err != nil {
		t.Fatal(err)
	}
	err := s.add(partHost, glooTCP, 0, []result{{N: 2, Bytes: 4, P50: 1, Wrong: 3}})
	if err == nil || !strings.Contains(err.Error(), "Gloo, n = 2, 4 bytes: 3 elements are wrong") {
		t.Errorf("wrong elements: %v", err)
	}
	if got := s.times(partHost, elrunHeap, 4, 4); len(got) != 2 || got[1] != 5 {
		t.Errorf("times %v", got)
	}
	if sizes, ranks := s.sizes(partHost), s.ranks(partHost); !slices.Equal(sizes, []int{4, 8}) || !slices.Equal(ranks, []int{2, 4}) {
		t.Errorf("sizes %v, ranks %v", sizes, ranks)
	}
	s.drop(partHost)
	if len(s.Records) != 1 || s.Records[0].Part != partTwo {
		t.Errorf("left: %+v", s.Records)
	}
}
