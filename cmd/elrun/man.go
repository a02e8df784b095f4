package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/elrun/elrun/launch/spec"
)

// manCommand is the hidden command elrun man-pages, with which packages are built: it writes manual pages in roff, elrun.1 and one for
// each command, from the model of kong.
type manCommand struct {
	Dir string `arg:"" help:"Directory for the pages; it is made if necessary."`
}

// Run writes the pages.
func (m *manCommand) Run(k *kong.Kong) error {
	if err := os.MkdirAll(m.Dir, 0o755); err != nil {
		return fmt.Errorf("manual pages: %w", err)
	}
	pages := map[string]string{"elrun.1": mainPage(k.Model)}
	for _, n := range k.Model.Children {
		if !n.Hidden {
			pages["elrun-"+n.Name+".1"] = commandPage(n)
		}
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(m.Dir, name), []byte(text), 0o644); err != nil {
			return fmt.Errorf("manual pages: %w", err)
		}
	}
	return nil
}

// roff collects the lines of a page.
type roff struct{ strings.Builder }

// newPage begins a page.
func newPage(name, what string) *roff {
	r := &roff{}
	fmt.Fprintf(r, ".TH %s 1 \"\" \"elrun %s\" \"elrun\"\n", strings.ToUpper(escapeRoff(name)), spec.Version)
	r.section("NAME")
	r.text(name + " - " + strings.TrimSuffix(what, "."))
	return r
}

// section begins a section.
func (r *roff) section(name string) { fmt.Fprintf(r, ".SH %s\n", name) }

// text adds a paragraph.
func (r *roff) text(s string) { fmt.Fprintln(r, escapeRoff(s)) }

// item adds an item of a list with its explanation.
func (r *roff) item(name, text string) {
	fmt.Fprintf(r, ".TP\n\\fB%s\\fR\n", escapeRoff(name))
	r.text(cmp.Or(text, name))
}

// mainPage returns the page of elrun itself.
func mainPage(app *kong.Application) string {
	r := newPage("elrun", "elastic data-parallel training without a coordinator")
	r.section("SYNOPSIS")
	r.text("elrun [run] [flags] [--] PROGRAM [ARGS...]")
	fmt.Fprintln(r, ".br")
	r.text("elrun COMMAND [flags] [ARGS...]")
	r.section("DESCRIPTION")
	r.text(app.Help + " A program named like a command needs the word run before it. Each command has a page of its own, as elrun-run(1).")
	r.section("COMMANDS")
	var also []string
	for _, n := range app.Children {
		if !n.Hidden {
			r.item(n.Name, n.Help)
			also = append(also, "elrun-"+n.Name+"(1)")
		}
	}
	r.flags(app.Flags)
	r.section("EXIT STATUS")
	for _, s := range [][2]string{{"0", "The job has finished, though peers may have died on the way; or the command has done its work."},
		{"1", "The program has failed, or the command."}, {"2", "The command line is wrong. Nothing was started."},
		{"75", "Too few peers were left to go on."}, {"128+N", "Signal N has interrupted elrun."}} {
		r.item(s[0], s[1])
	}
	r.section("SEE ALSO")
	r.text(strings.Join(also, ", "))
	return r.String()
}

// commandPage returns the page of a command.
func commandPage(n *kong.Node) string {
	r := newPage("elrun-"+n.Name, n.Help)
	r.section("SYNOPSIS")
	words := []string{"elrun", n.Name, "[flags]"}
	var arguments []*kong.Value
	for _, v := range n.Positional {
		if v.Tag.Hidden {
			continue
		}
		arguments = append(arguments, v)
		word := nameOf(v)
		switch {
		case v.Passthrough:
			word += " [ARGS...]"
		case v.IsSlice():
			word += "..."
		}
		if !v.Required {
			word = "[" + word + "]"
		}
		words = append(words, word)
	}
	r.text(strings.Join(words, " "))
	r.section("DESCRIPTION")
	r.text(n.Help)
	if len(arguments) > 0 {
		r.section("ARGUMENTS")
	}
	for _, v := range arguments {
		r.item(nameOf(v), v.Help)
	}
	r.flags(n.Flags)
	r.section("SEE ALSO")
	r.text("elrun(1)")
	return r.String()
}

// nameOf returns the name of an argument for people.
func nameOf(v *kong.Value) string { return strings.ToUpper(cmp.Or(v.Tag.PlaceHolder, v.Name)) }

// flags adds the section about flags, unless there are none.
func (r *roff) flags(all []*kong.Flag) {
	if len(all) == 0 {
		return
	}
	r.section("OPTIONS")
	for _, f := range all {
		if !f.Hidden {
			r.item(f.String(), f.Help)
		}
	}
}

// escapeRoff returns a line of text for roff, in which a backslash begins a command within a line, and a period or an apostrophe a
// line that is a command.
func escapeRoff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ").Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
