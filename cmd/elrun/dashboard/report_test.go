package dashboard

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/elrun/elrun/cmd/elrun/summary"
	"github.com/elrun/elrun/event"
	"github.com/elrun/elrun/event/timeline"
)

// The report has the whole snapshot, loads nothing, and no text of the job becomes a part of the page.
func TestWriteReport(t *testing.T) {
	work := newTraining(2, `</script><script>alert(1)</script>`, "<!--")
	work.job.Add(event.Event{Time: work.at, Index: event.NoPeer, Body: event.Note{Text: `<img src=x onerror=alert(1)> ]]> </body>`}})
	s := work.add(50)
	var page strings.Builder
	if err := WriteReport(&page, s); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	if n := strings.Count(text, "<script"); n != 2 {
		t.Errorf("%d scripts", n)
	}
	if strings.Contains(text, "<img") || strings.Count(text, "</body>") != 1 {
		t.Error("a text of the job is a part of the page")
	}
	before, after, _ := strings.Cut(text, `id="data">`)
	data, after, _ := strings.Cut(after, "</script>")
	if found := regexp.MustCompile(`(?m)(src=|href="[^d]|^import |^export |url\()`).FindString(before + after); found != "" {
		t.Errorf("the page loads something: %q", found)
	}
	var got timeline.Snapshot
	if err := json.Unmarshal([]byte(data), &got); err != nil {
		t.Fatal(err)
	}
	if encoded(t, got) != encoded(t, decoded(t, s)) {
		t.Error("the snapshot differs")
	}
}

// The page of runs loads nothing, is bounded, has the rows of the summary, and no text of a job becomes a part of it.
func TestWriteComparison(t *testing.T) {
	var runs []summary.Run
	for i := range MaxRuns {
		runs = append(runs, summary.Run{Name: fmt.Sprintf("</script><img src=x>%d", i), Job: newTraining(16, "a", "<!--").add(1000 + 100*i)})
	}
	var page strings.Builder
	if err := WriteComparison(&page, runs); err != nil {
		t.Fatal(err)
	}
	text := page.String()
	if strings.Count(text, "<script") != 2 || strings.Contains(text, "<img") || regexp.MustCompile(`(?m)^(import|export) |src="`).MatchString(text) {
		t.Error("the page loads something, or a text is a part of it")
	}
	if len(text) > 3<<20 {
		t.Errorf("the page has %d bytes", len(text))
	}
	_, after, _ := strings.Cut(text, `id="data">`)
	data, _, _ := strings.Cut(after, "</script>")
	var got struct {
		Runs []struct {
			Name string
			Job  timeline.Snapshot
		}
		Results, Settings []summary.Row
	}
	if err := json.Unmarshal([]byte(data), &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.Results, summary.Results(runs)) || len(got.Settings) != 0 || len(got.Runs) != MaxRuns || got.Runs[1].Name != runs[1].Name {
		t.Errorf("results %v, settings %v", got.Results, got.Settings)
	}
	last := got.Runs[1].Job.Series.BySteps
	if points := last[len(last)-1].Points; points[0].First != 1 || points[len(points)-1].Last != 1100 || len(points) > 512 || got.Runs[1].Job.Goodput.Peers != 16 {
		t.Errorf("%d points", len(points))
	}
	if err := WriteComparison(&page, append(runs, runs[0])); err == nil {
		t.Errorf("%d runs are no error", MaxRuns+1)
	}
}

// The scripts show texts of others as texts only.
func TestScripts(t *testing.T) {
	unsafe := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|setTimeout\("`)
	names, err := fs.Glob(files, "*/*")
	if err != nil || len(names) != 8 {
		t.Fatalf("files %v, %v", names, err)
	}
	for _, name := range names {
		b, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		if found := unsafe.Find(b); found != nil {
			t.Errorf("%s has %q", name, found)
		}
		if strings.Contains(string(b), "http:") || strings.Contains(string(b), "https:") {
			t.Errorf("%s names another server", name)
		}
	}
}

// The page of many peers and steps has a bounded size, since the model has.
func TestReportSize(t *testing.T) {
	var page strings.Builder
	if err := WriteReport(&page, newTraining(64, "a", "b", "c", "d").add(2500)); err != nil {
		t.Fatal(err)
	}
	if page.Len() > 3<<20 {
		t.Errorf("the page has %d bytes", page.Len())
	}
}
