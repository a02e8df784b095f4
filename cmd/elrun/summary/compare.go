package summary

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/elrun/elrun/event/timeline"
	"github.com/elrun/elrun/internal/printable"
)

// quarters is the number of places at which the loss of runs is compared.
const quarters = 4

// Run is a job to compare, with a name for people, such as that of its log.
type Run struct {
	Name string
	Job  timeline.Snapshot
}

// Row is a row of a comparison, with a cell for each run; "" is unknown.
type Row struct {
	Name  string   `json:"name"`
	Cells []string `json:"cells"`
}

// Comparison is a table with a column for each run and a row for each thing in which runs are compared.
type Comparison struct {
	Runs []string `json:"runs"` // names
	Rows []Row    `json:"rows"`
}

// Compare compares runs: what Results has, then what Settings has.
func Compare(runs []Run) Comparison {
	c := Comparison{Rows: slices.Concat(Results(runs), Settings(runs))}
	for _, r := range runs {
		c.Runs = append(c.Runs, r.Name)
	}
	return c
}

// String returns the table with aligned columns.
func (c Comparison) String() string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0) // a Builder cannot fail
	for _, row := range append([]Row{{Cells: c.Runs}}, c.Rows...) {
		cells := append([]string{row.Name}, row.Cells...)
		for i := range cells {
			cells[i] = printable.Line(cells[i])
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	_ = w.Flush()
	return b.String()
}

// Results returns how runs went: the end, goodput and speed of each, and the loss at the same steps, samples and times, as far as
// the shortest run goes.
func Results(runs []Run) []Row {
	c := comparison{runs: runs}
	c.results()
	for _, a := range axes() {
		c.losses(a)
	}
	return c.rows
}

// comparison gathers rows about runs.
type comparison struct {
	runs []Run
	rows []Row
}

// row adds a row, unless it is empty.
func (c *comparison) row(name string, cell func(timeline.Snapshot) string) {
	r := Row{Name: name}
	for _, run := range c.runs {
		r.Cells = append(r.Cells, cell(run.Job))
	}
	if strings.Join(r.Cells, "") != "" {
		c.rows = append(c.rows, r)
	}
}

// results adds the rows about how the runs went.
func (c *comparison) results() {
	c.row("end", outcome)
	c.row("steps", func(s timeline.Snapshot) string { return fmt.Sprint(s.Step) })
	c.row("time", func(s timeline.Snapshot) string { return length(s.Time.Sub(s.Begin)) })
	c.row("peers", func(s timeline.Snapshot) string { return fmt.Sprint(s.Goodput.Peers) })
	c.row("goodput", func(s timeline.Snapshot) string { return fmt.Sprintf("%.0f %%", 100*s.Goodput.Ratio) })
	c.row("changes", func(s timeline.Snapshot) string { return fmt.Sprint(max(0, s.Views-1)) })
	c.row("samples/s", func(s timeline.Snapshot) string {
		return fmt.Sprintf("%.0f", samplesOf(s)/max(s.Time.Sub(s.Begin).Seconds(), 1e-9))
	})
	c.row("accuracy", func(s timeline.Snapshot) string {
		if s.Done == nil || s.Done.Accuracy == nil {
			return ""
		}
		return fmt.Sprintf("%.4g", *s.Done.Accuracy)
	})
	c.row("sha256", func(s timeline.Snapshot) string {
		if s.Done == nil {
			return ""
		}
		return s.Done.SHA256[:min(12, len(s.Done.SHA256))]
	})
}

// losses adds the rows with the loss along an axis, as far as the shortest run goes.
func (c *comparison) losses(a axis) {
	end := math.Inf(1)
	for _, r := range c.runs {
		end = min(end, a.end(r.Job))
	}
	for q := 1; q <= quarters && end > 0; q++ {
		at := end * float64(q) / quarters
		c.row("loss at "+a.text(at), func(s timeline.Snapshot) string { return a.loss(s, at) })
	}
}

// Settings returns the settings that differ between runs.
func Settings(runs []Run) (rows []Row) {
	all := make(map[string]bool)
	var of []map[string]string
	for _, r := range runs {
		of = append(of, settingsOf(r.Job))
		for name := range of[len(of)-1] {
			all[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r := Row{Name: name}
		differs := false
		for _, settings := range of {
			differs = differs || settings[name] != of[0][name]
			r.Cells = append(r.Cells, settings[name])
		}
		if differs {
			rows = append(rows, r)
		}
	}
	return rows
}

// axis is what runs are compared along.
type axis struct {
	position func(s timeline.Snapshot, p timeline.Point, samples float64) float64
	text     func(at float64) string
}

// axes returns steps, samples and time.
func axes() []axis {
	return []axis{
		{func(_ timeline.Snapshot, p timeline.Point, _ float64) float64 { return float64(p.Last) }, func(at float64) string { return fmt.Sprintf("step %.0f", at) }},
		{func(_ timeline.Snapshot, _ timeline.Point, samples float64) float64 { return samples }, func(at float64) string { return fmt.Sprintf("%.0f samples", at) }},
		{func(s timeline.Snapshot, p timeline.Point, _ float64) float64 { return p.Time.Sub(s.Begin).Seconds() }, func(at float64) string { return length(time.Duration(at * float64(time.Second))) }},
	}
}

// points returns the points of the series over the whole job.
func points(s timeline.Snapshot) []timeline.Point {
	if n := len(s.Series.BySteps); n > 0 {
		return s.Series.BySteps[n-1].Points
	}
	return nil
}

// samplesOf returns the number of samples of a job.
func samplesOf(s timeline.Snapshot) (n float64) {
	for _, p := range points(s) {
		n += float64(p.Samples)
	}
	return n
}

// end returns the last position of a job.
func (a axis) end(s timeline.Snapshot) (last float64) {
	samples := 0.0
	for _, p := range points(s) {
		samples += float64(p.Samples)
		last = a.position(s, p, samples)
	}
	return last
}

// loss returns the loss of the first point at or after a position, "" if it is unknown.
func (a axis) loss(s timeline.Snapshot, at float64) string {
	samples := 0.0
	for _, p := range points(s) {
		samples += float64(p.Samples)
		if a.position(s, p, samples) >= at-1e-6 {
			if p.Loss == 0 {
				return ""
			}
			return fmt.Sprintf("%.4g", p.Loss)
		}
	}
	return ""
}

// settingsOf returns what a job was told: the fields of its event but its name and launcher, and the settings of its training.
func settingsOf(s timeline.Snapshot) map[string]string {
	about := s.Job
	about.Settings, about.Job, about.Launcher = nil, "", ""
	out := make(map[string]string)
	text, _ := json.Marshal(about) // an event can be encoded
	var fields map[string]any
	_ = json.Unmarshal(text, &fields) // and decoded
	for name, v := range fields {
		out[name] = fmt.Sprint(v)
	}
	for name, v := range s.Job.Settings {
		out[name] = v
	}
	return out
}
