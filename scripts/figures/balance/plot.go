package main

import (
	"bytes"
	"image/color"
	"os"

	"github.com/elrun/elrun/loadbal"
	"github.com/elrun/elrun/scripts/balsim"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// plotTrace plots a trace, with a row for each policy: shares on the left, step times on the right.
func plotTrace(t *balsim.Trace, name string) error {
	var rows [][]*plot.Plot
	for _, policy := range loadbal.Names() {
		run, err := simulate(t, policy)
		if err != nil {
			return err
		}
		shares, err := plotShares(run, policy+": shares")
		if err != nil {
			return err
		}
		times, err := plotTimes(run, policy+": ms a step")
		if err != nil {
			return err
		}
		rows = append(rows, []*plot.Plot{shares, times})
	}
	canvas := vgsvg.New(18*vg.Centimeter, vg.Length(len(rows))*4*vg.Centimeter)
	tiles := draw.Tiles{Rows: len(rows), Cols: 2, PadX: 4 * vg.Millimeter, PadY: 3 * vg.Millimeter,
		PadTop: vg.Millimeter, PadBottom: vg.Millimeter, PadLeft: vg.Millimeter, PadRight: 3 * vg.Millimeter}
	for i, places := range plot.Align(rows, tiles, draw.New(canvas)) {
		for j, place := range places {
			rows[i][j].Draw(place)
		}
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return err
	}
	return os.WriteFile(name, b.Bytes(), 0o644)
}

// plotShares plots the shares, with a line for each peer.
func plotShares(run *balsim.Run, title string) (*plot.Plot, error) {
	p := newPlot(title)
	for peer := range run.Shares[0] {
		points := make(plotter.XYs, len(run.Shares))
		for s, shares := range run.Shares {
			points[s] = plotter.XY{X: float64(s), Y: float64(shares[peer])}
		}
		if err := addLine(p, points, shade(peer)); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// plotTimes plots the step times, and in red the step times with foresight.
func plotTimes(run *balsim.Run, title string) (*plot.Plot, error) {
	p := newPlot(title)
	took, best := make(plotter.XYs, len(run.Took)), make(plotter.XYs, len(run.Took))
	for s := range run.Took {
		took[s] = plotter.XY{X: float64(s), Y: float64(run.Took[s]) / 1e6}
		best[s] = plotter.XY{X: float64(s), Y: float64(run.Best[s]) / 1e6}
	}
	if err := addLine(p, took, color.Black); err != nil {
		return nil, err
	}
	return p, addLine(p, best, color.RGBA{R: 220, A: 255})
}

func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font.Size = 8
	p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size = 7, 7
	p.Y.Min = 0
	return p
}

func addLine(p *plot.Plot, points plotter.XYs, c color.Color) error {
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.Width, line.Color = vg.Points(0.7), c
	p.Add(line)
	p.Y.Min = 0
	return nil
}

// shade returns the colour of a peer.
func shade(peer int) color.Color {
	return []color.Color{color.RGBA{B: 200, A: 255}, color.RGBA{G: 140, A: 255}, color.RGBA{R: 160, B: 160, A: 255}, color.RGBA{R: 230, G: 100, A: 255}}[peer%4]
}
