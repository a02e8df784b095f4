package dashboard

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"

	"github.com/elrun/elrun/cmd/elrun/summary"
	"github.com/elrun/elrun/event/timeline"
)

// MaxRuns is the number of runs that a page compares at most: it has as many colours, and its size is bounded.
const MaxRuns = 8

// WriteReport writes the page of a job as one HTML file, which loads nothing else and shows the snapshot.
func WriteReport(to io.Writer, s timeline.Snapshot) error {
	return writePage(to, "page/index.html", s, "page/model.js", "page/charts.js", "page/common.js", "page/app.js")
}

// WriteComparison writes a page that compares up to MaxRuns runs, as one HTML file: their charts over each other, and what
// summary.Compare has.
func WriteComparison(to io.Writer, runs []summary.Run) error {
	if len(runs) > MaxRuns {
		return fmt.Errorf("dashboard: %d runs: want at most %d", len(runs), MaxRuns)
	}
	data := struct {
		Runs     []comparedRun `json:"runs"`
		Results  []summary.Row `json:"results"`
		Settings []summary.Row `json:"settings"`
	}{Results: summary.Results(runs), Settings: summary.Settings(runs)}
	for _, r := range runs {
		data.Runs = append(data.Runs, comparedRun{r.Name, charted(r.Job)})
	}
	return writePage(to, "compare/index.html", data, "page/model.js", "page/charts.js", "page/common.js", "compare/compare.js")
}

// comparedRun is a run in the data of a page.
type comparedRun struct {
	Name string            `json:"name"`
	Job  timeline.Snapshot `json:"job"`
}

// charted returns what the charts need of a snapshot.
func charted(s timeline.Snapshot) timeline.Snapshot {
	c := timeline.Snapshot{Begin: s.Begin, Time: s.Time, Goodput: s.Goodput}
	if n := len(s.Series.BySteps); n > 0 {
		c.Series.BySteps = s.Series.BySteps[n-1:]
	}
	return c
}

// writePage writes a page with its style, its modules and its data in it.
func writePage(to io.Writer, index string, data any, modules ...string) error {
	text, err := json.Marshal(data) // it escapes <, so that no text of a job ends the element
	if err != nil {
		return fmt.Errorf("dashboard: encode the data of the page: %w", err)
	}
	_, err = strings.NewReplacer(
		`<link rel="stylesheet" href="style.css">`, `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:">
<style>`+"\n"+file("page/style.css")+`</style>`,
		`<script type="module" src="app.js"></script>`, "",
		`</body>`, `<script type="application/json" id="data">`+string(text)+"</script>\n<script type=\"module\">\n"+script(modules)+"</script>\n</body>",
	).WriteString(to, file(index))
	if err != nil {
		return fmt.Errorf("dashboard: write the page: %w", err)
	}
	return nil
}

// script returns modules as one: what one exports the others see by the same name.
func script(modules []string) string {
	imports, exports := regexp.MustCompile(`(?m)^import .*;\n`), regexp.MustCompile(`(?m)^export `)
	var all strings.Builder
	for _, name := range modules {
		all.WriteString(file(name))
	}
	return exports.ReplaceAllString(imports.ReplaceAllString(all.String(), ""), "")
}

// file returns a file of a page.
func file(name string) string {
	b, _ := fs.ReadFile(files, name) // it is embedded
	return string(b)
}
