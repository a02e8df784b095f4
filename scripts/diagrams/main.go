// Diagrams draws the walks through the code in docs/architecture.md: the functions that handle the
// start of a job, a vector, a gradient, the death of a member and the join of a peer, in order.
//
//	go run ./scripts/diagrams docs/architecture
//
// The test of this package checks that the functions exist and that the drawings are up to date.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "diagrams:", err)
		os.Exit(1)
	}
}

// run writes all walks as SVG files to the folder in args.
func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: diagrams FOLDER")
	}
	for _, w := range walks() {
		if err := os.WriteFile(filepath.Join(args[0], w.name+".svg"), w.draw(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Sizes of a drawing, in pixels.
const (
	width     = 760
	boxHeight = 44
	gap       = 22
	margin    = 12
)

// draw returns a walk as an SVG document: one box for each stop, from top to bottom.
func (w walk) draw() []byte {
	var b strings.Builder
	height := 2*margin + len(w.stops)*(boxHeight+gap) - gap
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", escape(w.title))
	for i, s := range w.stops {
		y := margin + i*(boxHeight+gap)
		fill := "#eef3fa"
		if s.in == "peer" {
			fill = "#fdf3e3"
		}
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" rx="6" fill="%s" stroke="#33639c"/>`+"\n", margin, y, width-2*margin, boxHeight, fill)
		fmt.Fprintf(&b, `<text x="%d" y="%d" font-family="monospace" font-weight="bold">%d  %s</text>`+"\n", 2*margin, y+18, i+1, escape(s.function()))
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`+"\n", 2*margin, y+36, escape(s.does))
		if s.in != "" {
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">in %s</text>`+"\n", width-2*margin, y+18, escape(s.in))
		}
		if i > 0 {
			fmt.Fprintf(&b, `<path d="M%d %d v%d m-4 -6 l4 6 l4 -6" fill="none" stroke="#33639c"/>`+"\n", width/2, y-gap, gap)
		}
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// escape returns text with XML's special characters escaped.
func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}
