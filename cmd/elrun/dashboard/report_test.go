package dashboard

import (
	"encoding/json"
	"io/fs"
	"regexp"
	"strings"
	"testing"

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

// The scripts show texts of others as texts only.
func TestScripts(t *testing.T) {
	unsafe := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|setTimeout\("`)
	names, err := fs.Glob(files, "page/*")
	if err != nil || len(names) != 5 {
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
