package main

import (
	"bytes"
	"image/color"
	"math"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// plot draws two panels: the times of all sides by size, and the ratio of each other side's time to elrun's time in shared
// memory.
func (s *study) plot(n int, name string) error {
	times := newPlot("microseconds by bytes")
	ratios := newPlot("time over that of " + elrunHeap)
	for i, one := range sides() {
		var took, over plotter.XYs
		for _, size := range s.sizes(partHost) {
			cell := s.times(partHost, one.name, n, size)
			if us := median(cell); us > 0 { // NaN if the side was not measured
				took = append(took, plotter.XY{X: float64(size), Y: us})
			}
			if r := compare(cell, s.times(partHost, elrunHeap, n, size)); r.Of > 0 {
				over = append(over, plotter.XY{X: float64(size), Y: r.Of})
			}
		}
		if err := addLine(times, took, i, one.name); err != nil {
			return err
		}
		if err := addLine(ratios, over, i, ""); err != nil {
			return err
		}
	}
	for _, p := range []*plot.Plot{times, ratios} {
		extend(&p.X)
		extend(&p.Y)
	}
	canvas := vgsvg.New(24*vg.Centimeter, 10*vg.Centimeter)
	tiles := draw.Tiles{Rows: 1, Cols: 2, PadX: 5 * vg.Millimeter, PadTop: vg.Millimeter, PadBottom: vg.Millimeter,
		PadLeft: vg.Millimeter, PadRight: 3 * vg.Millimeter}
	rows := [][]*plot.Plot{{times, ratios}}
	for i, place := range plot.Align(rows, tiles, draw.New(canvas))[0] {
		rows[0][i].Draw(place)
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}

// newPlot returns a plot with logarithmic axes.
func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font.Size = 9
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: 0}, plot.LogTicks{Prec: -1}
	p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size = 7, 7
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.TextStyle.Font.Size = 7
	p.Add(plotter.NewGrid())
	return p
}

// addLine adds a line if it has points.
func addLine(p *plot.Plot, points plotter.XYs, index int, name string) error {
	if len(points) == 0 {
		return nil
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.Width, line.Color = vg.Points(1), shade(index)
	if index%2 == 1 { // dashes distinguish lines without colours
		line.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
	}
	p.Add(line)
	if name != "" {
		p.Legend.Add(name, line)
	}
	return nil
}

// extend widens an axis that has no value or only one, because a logarithmic axis without extent cannot be drawn.
func extend(a *plot.Axis) {
	if a.Min > a.Max { // an axis without values
		a.Min, a.Max = 1, 1
	}
	if a.Min == a.Max {
		a.Min, a.Max = a.Min/2, a.Max*2
	}
}

// shade returns the colour of a side. Hues are equally spaced.
func shade(index int) color.Color {
	hue := math.Mod(float64(index)*0.382*6, 6)
	part := func(shift float64) uint8 {
		at := math.Mod(hue+shift, 6)
		return uint8(200 * min(1, max(0, math.Abs(at-3)-1)))
	}
	return color.RGBA{R: part(0), G: part(4), B: part(2), A: 255}
}
