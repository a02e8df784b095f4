package say

import (
	"strings"

	"github.com/elrun/elrun/internal/printable"
	"github.com/elrun/elrun/launch/spec"
)

const (
	wideBar, narrowBar     = 20, 10
	wideSpark, narrowSpark = 16, 8
	gap                    = "  " // between the parts of a progress line
	// maxLosses bounds the values from which the sparkline is drawn.
	maxLosses = 4 * wideSpark
)

// liveLine draws the progress line of a terminal: that of spec.Pace, with a bar and a sparkline of the loss where
// there is room. It does no I/O.
type liveLine struct {
	step   int64     // the latest step
	losses []float64 // over all steps so far, oldest first: each is the mean of per steps
	per    int
	sum    float64 // of the steps after those
	n      int
}

// observe follows the loss.
func (l *liveLine) observe(p *spec.Pace) {
	loss := lossOf(p)
	if p.Step <= l.step || loss == 0 || loss-loss != 0 { // an infinite loss has no level
		return
	}
	l.step, l.per = p.Step, max(1, l.per)
	l.sum, l.n = l.sum+loss, l.n+1
	if l.n < l.per {
		return
	}
	l.losses = append(l.losses, l.sum/float64(l.n))
	l.sum, l.n = 0, 0
	if len(l.losses) < maxLosses {
		return
	}
	for i := range maxLosses / 2 {
		l.losses[i] = (l.losses[2*i] + l.losses[2*i+1]) / 2
	}
	l.losses, l.per = l.losses[:maxLosses/2], 2*l.per
}

// lossOf returns the loss of the latest step, of the trainer or as a program reports it; 0 if it is unknown.
func lossOf(p *spec.Pace) float64 {
	if p.Loss != 0 {
		return p.Loss
	}
	return p.Metrics["loss"]
}

// draw adds the bar and the sparkline to a line of p, for a terminal of a width; 0 if it is unknown. If the line itself is too long,
// parts of it are left out.
func (l *liveLine) draw(line string, p *spec.Pace, width int, ascii bool) string {
	if line == "" || width <= 0 {
		return line
	}
	parts := strings.Split(printable.Line(line), gap)
	room := width - 1 - printable.Columns(line) // a terminal may begin a row after its last column
	for i := len(parts) - 2; room < 0 && i > 0; i-- {
		room += len(gap) + printable.Columns(parts[i]) // the last part is the time left
		parts = append(parts[:i], parts[i+1:]...)
	}
	bar := ""
	for _, w := range []int{wideBar, narrowBar} {
		if need := w + len(gap); p.Of > 0 && bar == "" && (room >= need+narrowSpark+1 || w == narrowBar && room >= need) {
			bar = printable.Bar(float64(p.Step)/float64(p.Of), w) + gap
			room -= need
		}
	}
	for i, part := range parts {
		for _, w := range []int{wideSpark, narrowSpark} {
			if room > w && strings.HasPrefix(part, "loss ") && len(l.losses) > 1 {
				parts[i] = part + " " + printable.Spark(l.losses, w, false, ascii)
				room = 0
			}
		}
	}
	return bar + strings.Join(parts, gap)
}
