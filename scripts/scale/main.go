// Command scale measures and plots the cost of a group by the number of its members, in virtual time:
//
//	go run ./scripts/scale docs            measures and draws
//	go run ./scripts/scale --log FILE docs draws the figures of an earlier run in FILE
//
// It runs three tests. In TestScale of elastic/member, the membership state machines run without
// any other part of a member. Each second a member joins and another member dies. In
// TestGroupOfMany of elastic, members have all parts except the data plane, and 1 % of them join
// and die in a minute. In TestManyMembers of testing/simnet, complete members add up values.
// docs/scale.md explains the measurements.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
)

// runs returns the arguments of the measurements, each with the sizes of its groups.
func runs() [][]string {
	var all [][]string
	for _, n := range []string{"10", "100", "1000"} {
		all = append(all, []string{"-run=^TestScale$", "./elastic/member", "-scale=" + n})
	}
	for _, n := range []string{"30", "100", "200"} {
		all = append(all, []string{"-run=^TestManyMembers$", "./testing/simnet", "-many=" + n})
	}
	for _, n := range []string{"100", "300", "1000", "3000", "10000"} {
		all = append(all, []string{"-run=^TestGroupOfMany$", "./elastic", "-many=" + n, "-minutes=1"})
	}
	return all
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

// run measures, or reads an earlier measurement, prints a table and writes the plots.
func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("scale", flag.ContinueOnError)
	kept := flags.String("log", "", "what was measured: read, or written where there is no such file")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("usage: scale [--log FILE] DIRECTORY")
	}
	log, err := os.ReadFile(*kept)
	if err != nil {
		if log, err = measure(out); err != nil {
			return err
		}
		if *kept != "" {
			if err := os.WriteFile(*kept, log, 0o644); err != nil {
				return err
			}
		}
	}
	all := parse(log)
	table(out, all)
	for name, panels := range plots() {
		svg, err := draw(panels, all)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(flags.Arg(0), name), svg, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// measure runs all measurements and returns their logs.
func measure(out io.Writer) ([]byte, error) {
	var all []byte
	for _, args := range runs() {
		fmt.Fprintln(out, "go test", strings.Join(args, " "))
		cmd := exec.Command("go", append([]string{"test", "-count=1", "-timeout=5h", "-v"}, args...)...)
		log, err := cmd.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%v: %w\n%s", cmd.Args, err, log)
		}
		all = append(all, log...)
	}
	return all, nil
}

// figure is a line of a log: the measured values of one group in one phase.
type figure struct {
	phase   string // the test (machine, many or full), a space and the phase
	members int
	values  map[string]float64
}

// parse returns the figures in a log, from lines such as "many phase=idle members=100
// letters=38.0".
func parse(log []byte) (all []figure) {
	for _, m := range regexp.MustCompile(`go:\d+: (\w+ phase=\w+) members=(\d+) (.*)`).FindAllSubmatch(log, -1) {
		f := figure{phase: strings.Replace(string(m[1]), " phase=", " ", 1), values: make(map[string]float64)}
		f.members, _ = strconv.Atoi(string(m[2])) // only digits
		for _, field := range strings.Fields(string(m[3])) {
			key, value, _ := strings.Cut(field, "=")
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				f.values[key] = v
			}
		}
		all = append(all, f)
	}
	return all
}

// table prints the figures as a table.
func table(out io.Writer, all []figure) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, f := range all {
		fmt.Fprintf(w, "%s\t%d", f.phase, f.members)
		for _, key := range []string{"ms", "most_ms", "letters", "messages", "beats", "bytes", "most", "peers", "views", "member_bytes", "view_bytes", "encoded"} {
			if v, ok := f.values[key]; ok {
				fmt.Fprintf(w, "\t%s %.0f", key, v)
			}
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // errors of printing are ignored
}

// plots returns the panels of each file.
func plots() map[string][]panel {
	return map[string][]panel{
		"membership-scale.svg": {
			{title: "ms until all know of a join and a death", curves: []curve{{"machine change", "ms", ""}}},
			{title: "messages for both", curves: []curve{{"machine change", "messages", ""}}},
		},
		"scale.svg": {
			{title: "ms until members know of a change", curves: []curve{{"many join", "ms", "join"}, {"many leave", "ms", "leave"}, {"many power", "ms", "host lost"}}},
			{title: "control messages a member and second", curves: []curve{{"many idle", "letters", "idle"}, {"many churn", "letters", "churn"}}},
			{title: "control bytes a member and second", curves: []curve{{"many idle", "bytes", "idle"}, {"many churn", "bytes", "churn"}, {"many churn", "most", "busiest"}}},
			{title: "bytes of memory a member", curves: []curve{{"many memory", "member_bytes", "driver"}, {"many memory", "view_bytes", "a view"}, {"full memory", "member_bytes", "with all streams"}}},
		},
	}
}

// draw returns an SVG document of panels.
func draw(panels []panel, all []figure) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		left+len(panels)*(side+gap), top+down+60)
	fmt.Fprintln(&b, `<rect width="100%" height="100%" fill="white"/>`)
	for i, p := range panels {
		if err := p.draw(&b, left+i*(side+gap), all); err != nil {
			return nil, err
		}
	}
	fmt.Fprintln(&b, "</svg>")
	return b.Bytes(), nil
}
