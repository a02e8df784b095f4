package main

import (
	"bytes"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// plot draws the samples that have counted in the first run of each system, by time, and the times without a new step after
// each kill of all runs.
func (s *study) plot(name string) error {
	counted := newPlot("thousand samples that have counted, by seconds; kills at 1/4 and 3/4, a join at 1/2")
	gaps := newPlot("ms without a new step after a kill, each kill")
	gaps.Y.Scale, gaps.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: 0}
	gaps.Y.Min, gaps.Y.Max = 10, 10000
	var names []string
	for _, one := range s.Systems {
		runs := s.of(one.Name)
		if len(runs) == 0 {
			continue
		}
		line := plotter.XYs{{}}
		for i, n := range runs[0].Curve {
			line = append(line, plotter.XY{X: float64(i+1) * s.Every, Y: float64(n) / 1000})
		}
		dots := s.dots(runs, float64(len(names)))
		for _, d := range dots {
			gaps.Y.Max = max(gaps.Y.Max, d.Y)
		}
		if err := add(counted, gaps, line, dots, len(names), one.Name); err != nil {
			return err
		}
		names = append(names, one.Name)
	}
	gaps.NominalX(names...)
	gaps.X.Min, gaps.X.Max = -0.5, float64(len(names))-0.5
	gaps.X.Tick.Label.Font.Size = 6
	canvas := vgsvg.New(26*vg.Centimeter, 10*vg.Centimeter)
	tiles := draw.Tiles{Rows: 1, Cols: 2, PadX: 5 * vg.Millimeter, PadTop: vg.Millimeter, PadBottom: vg.Millimeter,
		PadLeft: vg.Millimeter, PadRight: 3 * vg.Millimeter}
	rows := [][]*plot.Plot{{counted, gaps}}
	for i, place := range plot.Align(rows, tiles, draw.New(canvas))[0] {
		rows[0][i].Draw(place)
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}

// dots returns a point for each kill, at the time without a new step after it. If no step followed before the next event, it is
// the time to that event.
func (s *study) dots(runs []run, x float64) (dots plotter.XYs) {
	for _, r := range runs {
		for _, t := range r.Kills {
			ms := 1000 * s.Seconds / 4
			if t != nil {
				ms = *t
			}
			dots = append(dots, plotter.XY{X: x, Y: ms})
		}
	}
	return dots
}

func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font.Size = 8
	p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size = 7, 7
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.TextStyle.Font.Size = 7
	p.Add(plotter.NewGrid())
	return p
}

// add adds the line of a system to one plot, and its dots to the other.
func add(lines, scatter *plot.Plot, line, dots plotter.XYs, index int, name string) error {
	l, err := plotter.NewLine(line)
	if err != nil {
		return err
	}
	l.Width, l.Color = vg.Points(1.2), shade(index)
	lines.Add(l)
	lines.Legend.Add(name, l)
	if len(dots) == 0 {
		return nil
	}
	d, err := plotter.NewScatter(dots)
	if err != nil {
		return err
	}
	d.Color, d.Shape, d.Radius = shade(index), draw.CircleGlyph{}, vg.Points(2.5)
	scatter.Add(d)
	return nil
}

// shade returns the colour of a system.
func shade(index int) color.Color {
	return []color.Color{color.RGBA{B: 200, A: 255}, color.RGBA{G: 140, A: 255}, color.RGBA{R: 130, G: 190, A: 255},
		color.RGBA{R: 230, G: 120, A: 255}, color.RGBA{R: 200, A: 255}, color.RGBA{R: 140, B: 160, A: 255}}[index%6]
}
