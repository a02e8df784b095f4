package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// table returns the table, with a line about the machine, and the final losses beside those of one process.
func (s *study) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s, load %.1f, runs of %.0f s each; times are in ms, the median and the longest:\n\n", s.Machine, s.Load, s.Seconds)
	b.WriteString("| system | runs | no new step after a kill | after a join | undisturbed step | samples a second | samples lost | repeated | lines | runs beside the workers |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, one := range s.Systems {
		runs := s.of(one.Name)
		if len(runs) == 0 {
			continue
		}
		var kills, joins, steps []*float64
		var goodput []float64
		var lost, repeated []*int
		for _, r := range runs {
			kills = append(kills, r.Kills...)
			joins = append(joins, r.Join)
			steps = append(steps, r.Step)
			goodput = append(goodput, r.Goodput)
			lost, repeated = append(lost, r.Lost), append(repeated, r.Repeated)
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %s | %s | %s | %d | %s |\n", one.Name, len(runs), times(kills), times(joins), middle(steps),
			thousands(int(math.Round(median(goodput)))), worst(lost), worst(repeated), one.Lines, one.Needs)
	}
	b.WriteString("\n| system | steps at the end | loss of the test set | the same steps in one process, 5 seeds | right | one process |\n")
	b.WriteString("| --- | --- | --- | --- | --- | --- |\n")
	for _, one := range s.Systems {
		b.WriteString(s.results(one.Name))
	}
	b.WriteString("\n")
	return b.String()
}

// of returns the runs of a system.
func (s *study) of(name string) (runs []run) {
	for _, r := range s.Runs {
		if r.System == name {
			runs = append(runs, r)
		}
	}
	return runs
}

// results returns the row of a system in the table of losses: its medians beside the spread of one process after as many steps.
func (s *study) results(name string) string {
	var steps, losses, rights []float64
	for _, r := range s.of(name) {
		if r.Result != nil {
			steps = append(steps, float64(r.Result.Step))
			losses, rights = append(losses, r.Result.Loss), append(rights, r.Result.Right)
		}
	}
	if len(steps) == 0 {
		return ""
	}
	step := median(steps)
	var loss, right []float64
	for _, seed := range s.Alone {
		l, r := after(seed, step)
		loss, right = append(loss, l), append(right, r)
	}
	if len(loss) == 0 {
		return ""
	}
	return fmt.Sprintf("| %s | %s | %.4f | %.4f to %.4f | %.2f %% | %.2f to %.2f %% |\n", name, thousands(int(step)), median(losses), slices.Min(loss),
		slices.Max(loss), 100*median(rights), 100*slices.Min(right), 100*slices.Max(right))
}

// after returns the loss and the part that is right after a number of steps, by interpolation between the hundreds.
func after(seed [][2]float64, step float64) (loss, right float64) {
	at := min(max(step/100-1, 0), float64(len(seed)-1))
	low := int(at)
	high := min(low+1, len(seed)-1)
	part := at - float64(low)
	return seed[low][0] + part*(seed[high][0]-seed[low][0]), seed[low][1] + part*(seed[high][1]-seed[low][1])
}

// times returns the median and the longest of times. A time that did not end is longer than all others.
func times(all []*float64) string {
	known := sorted(all)
	if len(all) == 0 || len(known) == 0 {
		return "-"
	}
	longest := number(known[len(known)-1])
	if len(known) < len(all) {
		longest = fmt.Sprintf("%d of %d without end", len(all)-len(known), len(all))
	}
	half := (len(all) - 1) / 2
	if half >= len(known) {
		return longest
	}
	return number(known[half]) + ", " + longest
}

// middle returns the median of times.
func middle(all []*float64) string {
	known := sorted(all)
	if len(known) == 0 {
		return "-"
	}
	return number(median(known))
}

func sorted(all []*float64) (known []float64) {
	for _, t := range all {
		if t != nil {
			known = append(known, *t)
		}
	}
	slices.Sort(known)
	return known
}

// median returns the median of at least one value.
func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// worst returns the largest count, and - if there is none.
func worst(counts []*int) string {
	if slices.Contains(counts, nil) {
		return "-"
	}
	return thousands(*slices.MaxFunc(counts, func(a, b *int) int { return cmp.Compare(*a, *b) }))
}

// number formats milliseconds.
func number(ms float64) string {
	if ms < 100 {
		return fmt.Sprintf("%.1f", ms)
	}
	return thousands(int(math.Round(ms)))
}

// thousands formats a number that is not negative with commas.
func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return thousands(n/1000) + fmt.Sprintf(",%03d", n%1000)
}
