// Command scale measures what a change of membership costs in groups of 10, 100 and
// 1,000 in the simulator, and plots it:
//
//	go run ./scripts/scale docs/membership-scale.svg
//
// It runs TestScale of elastic/member, in which one member joins and another dies
// every second.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strconv"
)

// figure is what TestScale logs: medians over its rounds.
type figure struct {
	members  int
	ticks    int // of 10 ms, until all know of both changes
	messages int // of a round, beats apart
	beats    int // of a second
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// run measures, prints a table and writes the plot.
func run(args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: scale FILE.svg")
	}
	var all []figure
	for _, n := range []int{10, 100, 1000} {
		f, err := measure(n)
		if err != nil {
			return err
		}
		all = append(all, f)
		fmt.Fprintf(out, "%5d members: %3d ms until all know, %6d messages (%.1f a member), %.1f beats a member and second\n",
			f.members, f.ticks*10, f.messages, float64(f.messages)/float64(f.members), float64(f.beats)/float64(f.members))
	}
	return os.WriteFile(args[0], plot(all), 0o644)
}

// measure runs the test with n members.
func measure(n int) (figure, error) {
	cmd := exec.Command("go", "test", "-count=1", "-v", "-run=^TestScale$", "./elastic/member", "-scale="+strconv.Itoa(n))
	log, err := cmd.CombinedOutput()
	if err != nil {
		return figure{}, fmt.Errorf("%v: %w\n%s", cmd.Args, err, log)
	}
	return parse(log)
}

// parse finds the line of the figures.
func parse(log []byte) (figure, error) {
	m := regexp.MustCompile(`scale members=(\d+) ticks=(\d+) messages=(\d+) beats=(\d+)`).FindSubmatch(log)
	if m == nil {
		return figure{}, fmt.Errorf("no figures in:\n%s", log)
	}
	var v [4]int
	for i := range v {
		n, err := strconv.Atoi(string(m[i+1]))
		if err != nil {
			return figure{}, err
		}
		v[i] = n
	}
	return figure{v[0], v[1], v[2], v[3]}, nil
}

// Size of the plot, and of the area in it.
const (
	width, height = 640, 300
	left, top     = 70, 40
	side, down    = 200, 200
)

// plot draws two panels with logarithmic scales: time and messages over members.
func plot(all []figure) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintln(&b, `<rect width="100%" height="100%" fill="white"/>`)
	panel(&b, left, "ms until all know of a join and a death", all, func(f figure) int { return f.ticks * 10 })
	panel(&b, left+side+110, "messages for both", all, func(f figure) int { return f.messages })
	fmt.Fprintln(&b, "</svg>")
	return b.Bytes()
}

// decades is how many powers of ten an axis has: from 10 to 100,000.
const decades = 4

// panel draws one curve at x.
func panel(b *bytes.Buffer, x int, title string, all []figure, y func(figure) int) {
	fmt.Fprintf(b, `<text x="%d" y="%d">%s</text>`+"\n", x, top-15, title)
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="black"/>`+"\n", x, top, side, down)
	for i := 0; i <= decades; i++ {
		h := top + down - i*down/decades
		fmt.Fprintf(b, `<path d="M%d %dh%d" stroke="#ddd"/><text x="%d" y="%d" text-anchor="end">%d</text>`+"\n", x, h, side, x-5, h+4, power(i+1))
	}
	line := ""
	for i, f := range all {
		px := x + 20 + i*(side-40)/(len(all)-1)
		py := top + down - int(float64(down)/decades*(log10(y(f))-1))
		line += fmt.Sprintf("%s%d %d", map[bool]string{true: "M", false: "L"}[i == 0], px, py)
		fmt.Fprintf(b, `<circle cx="%d" cy="%d" r="3"/><text x="%d" y="%d" text-anchor="middle">%d</text><text x="%d" y="%d" text-anchor="middle">%d</text>`+"\n",
			px, py, px, py-8, y(f), px, top+down+16, f.members)
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="black"/>`+"\n", line)
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">members</text>`+"\n", x+side/2, top+down+36)
}

// log10 of a count; that of nothing is that of one.
func log10(n int) float64 { return math.Log10(float64(max(n, 1))) }

func power(n int) int {
	p := 1
	for range n {
		p *= 10
	}
	return p
}
