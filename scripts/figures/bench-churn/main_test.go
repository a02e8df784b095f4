package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const figures = `{"machine":"Two cores","load":0.5,"seconds":40,"every":0.25,
"systems":[{"name":"a","lines":3,"needs":"nothing"},{"name":"b","lines":12,"needs":"a master"},{"name":"c","lines":1,"needs":"x"}],
"runs":[
{"system":"a","kills":[40,60],"join":30.5,"step":25,"goodput":15000,"lost":0,"repeated":0,"result":{"step":150,"loss":0.25,"right":0.9},"curve":[10,20]},
{"system":"a","kills":[50,1234],"join":null,"step":26,"goodput":17000,"lost":0,"repeated":0,"result":{"step":150,"loss":0.35,"right":0.8},"curve":[10,30]},
{"system":"b","kills":[5000,null],"join":null,"step":null,"goodput":1000,"lost":12345,"repeated":null,"result":null,"curve":[]}],
"alone":[[[0.5,0.7],[0.3,0.9]],[[0.6,0.8],[0.2,0.9]]]}`

func TestWrite(t *testing.T) {
	docs := t.TempDir()
	page := filepath.Join(docs, "benchmarks.md")
	for name, text := range map[string]string{
		filepath.Join(docs, "benchmarks", "churn.json"): figures,
		page: "before\n" + tableBegin + "old\n" + tableEnd + "after\n",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := write(docs); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"before\n" + tableBegin, tableEnd + "after\n", "Two cores, load 0.5, runs of 40 s",
		"| a | 2 | 50.0, 1,234 | 30.5, 1 of 2 without end | 25.5 | 16,000 | 0 | 0 | 3 | nothing |\n",
		"| b | 1 | 5,000, 1 of 2 without end | - | - | 1,000 | 12,345 | - | 12 | a master |\n",
		"| a | 150 | 0.3000 | 0.4000 to 0.4000 | 85.00 % | 80.00 to 85.00 % |\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "old\n") || strings.Contains(string(text), "| c |") {
		t.Errorf("the page has an old table, or a system without runs:\n%s", text)
	}
	svg, err := os.ReadFile(filepath.Join(docs, "benchmarks", "churn.svg"))
	if err != nil || !strings.Contains(string(svg), "<svg") {
		t.Errorf("churn.svg: %v, %q", err, svg)
	}
	if err := os.WriteFile(page, []byte("no place"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := write(docs); err == nil || !strings.Contains(err.Error(), "no place") {
		t.Errorf("a page without a place for the table: %v", err)
	}
}

func TestTimes(t *testing.T) {
	ms := func(values ...float64) (all []*float64) {
		for _, v := range values {
			if v == 0 {
				all = append(all, nil)
			} else {
				all = append(all, &v)
			}
		}
		return all
	}
	for _, c := range []struct {
		times []*float64
		want  string
	}{
		{nil, "-"},
		{ms(0, 0), "-"},
		{ms(3, 1, 2), "2.0, 3.0"},
		{ms(3, 1, 2, 4), "2.0, 4.0"},
		{ms(7, 0, 3), "7.0, 1 of 3 without end"},
		{ms(7, 0, 0), "2 of 3 without end"},
	} {
		if got := times(c.times); got != c.want {
			t.Errorf("times: %q, want %q", got, c.want)
		}
	}
}
