package main

import (
	"bytes"
	"fmt"
	"math"
)

// Sizes of a panel and of its margins, in pixels.
const (
	side, down = 200, 200
	left, top  = 70, 40
	gap        = 110
)

// curve is a value in a phase, plotted over the number of members.
type curve struct{ phase, value, name string }

// panel is a plot with two logarithmic axes, each of which begins and ends at a power of ten.
type panel struct {
	title  string
	curves []curve
}

// points returns the points of a curve: the number of members and the value. Values below 1 count
// as 1.
func (c curve) points(all []figure) (points [][2]float64) {
	for _, f := range all {
		if v, ok := f.values[c.value]; ok && f.phase == c.phase {
			points = append(points, [2]float64{float64(f.members), max(v, 1)})
		}
	}
	return points
}

// decades returns the powers of ten that enclose the values of all curves on one axis.
func (p panel) decades(all []figure, axis int) (low, high int) {
	low, high = math.MaxInt, math.MinInt
	for _, c := range p.curves {
		for _, v := range c.points(all) {
			low, high = min(low, int(math.Floor(math.Log10(v[axis])))), max(high, int(math.Ceil(math.Log10(v[axis]))))
		}
	}
	return low, max(high, low+1)
}

// draw draws the panel with its left side at x.
func (p panel) draw(b *bytes.Buffer, x int, all []figure) error {
	xLow, xHigh := p.decades(all, 0)
	yLow, yHigh := p.decades(all, 1)
	if xLow > xHigh {
		return fmt.Errorf("no figures for the plot of %s", p.title)
	}
	px := func(v float64) int { return x + int(side*(math.Log10(v)-float64(xLow))/float64(xHigh-xLow)) }
	py := func(v float64) int { return top + down - int(down*(math.Log10(v)-float64(yLow))/float64(yHigh-yLow)) }
	fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`+"\n", x, top-15, p.title)
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="black"/>`+"\n", x, top, side, down)
	for d := yLow; d <= yHigh; d++ {
		at := py(math.Pow10(d))
		fmt.Fprintf(b, `<path d="M%d %dh%d" stroke="#ddd"/><text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", x, at, side, x-5, at+4, short(d))
	}
	for d := xLow; d <= xHigh; d++ {
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", px(math.Pow10(d)), top+down+16, short(d))
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">members</text>`+"\n", x+side/2, top+down+36)
	for i, c := range p.curves {
		c.draw(b, []string{"black", "#c33", "#36c"}[i], px, py, c.points(all))
	}
	return nil
}

// draw draws the curve, with its name above its last point.
func (c curve) draw(b *bytes.Buffer, colour string, px, py func(float64) int, points [][2]float64) {
	line := ""
	for i, v := range points {
		line += fmt.Sprintf("%s%d %d", map[bool]string{true: "M", false: "L"}[i == 0], px(v[0]), py(v[1]))
		fmt.Fprintf(b, `<circle cx="%d" cy="%d" r="3" fill="%s"/>`+"\n", px(v[0]), py(v[1]), colour)
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s"/>`+"\n", line, colour)
	if len(points) > 0 {
		last := points[len(points)-1]
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end" fill="%s">%s</text>`+"\n", px(last[0]), py(last[1])-6, colour, c.name)
	}
}

// short returns a label for the power of ten with exponent d.
func short(d int) string {
	names := []string{"1", "10", "100", "1 k", "10 k", "100 k", "1 M", "10 M", "100 M"}
	if d < 0 || d >= len(names) {
		return fmt.Sprintf("1e%d", d)
	}
	return names[d]
}
