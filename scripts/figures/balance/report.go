package main

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/elrun/elrun/loadbal"
	"github.com/elrun/elrun/scripts/balsim"
)

// report returns the text of docs/balancing.md. folder is the path of the plots relative to docs.
func report(root, folder string) ([]byte, error) {
	all, err := traces(root, peers, steps)
	if err != nil {
		return nil, err
	}
	done, err := simulateAll(all)
	if err != nil {
		return nil, err
	}
	plotted, err := traces(root, plotPeers, plotSteps)
	if err != nil {
		return nil, err
	}
	b := new(bytes.Buffer)
	b.WriteString(opening)
	writeRanking(b, all, done)
	writeStealing(b, all, done)
	b.WriteString(changing)
	changes := func(r *balsim.Run) int64 { return int64(r.Changes(20)) * 1000 / int64(len(r.Took)-20) }
	write(b, all, done.table(loadbal.Names(), changes), false)
	if err := writeSettling(b); err != nil {
		return nil, err
	}
	b.WriteString(noisy)
	if err := writeNoise(b); err != nil {
		return nil, err
	}
	writeVariants(b, all, done)
	fmt.Fprintf(b, plots, plotPeers, plotSteps)
	for _, t := range plotted {
		fmt.Fprintf(b, "### %s\n\n%s%s.\n\n![%s](%s/%s)\n\n", t.Name, string(t.About[0]-'a'+'A'), t.About[1:], t.Name, folder, file(t))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// writeRanking writes, for each policy, the speed as a fraction of the speed with foresight. It
// also writes by how much the mean of the default policy exceeds other means, and on which traces
// another policy is better.
func writeRanking(b *bytes.Buffer, all []*balsim.Trace, done runs) {
	rows := done.table(loadbal.Names(), (*balsim.Run).Efficiency)
	write(b, all, rows, true)
	name := loadbal.Names()[0]
	fmt.Fprintf(b, "The default is `%s`: %s %% in the mean, %s more than the next one, `%s`, and %s more than equal shares.\n",
		name, percent(mean(rows, name)), percent(rows[0].mean()-rows[1].mean()), rows[1].name, percent(rows[0].mean()-mean(rows, "equal")))
	own := done.table([]string{name}, (*balsim.Run).Efficiency)[0].figures
	for i, t := range all {
		best := slices.MaxFunc(rows, func(x, y row) int { return int(x.figures[i] - y.figures[i]) })
		if more := best.figures[i] - own[i]; more > 0 {
			fmt.Fprintf(b, "On \"%s\" `%s` reaches %s points more than `%s`.\n", t.Name, best.name, percent(more), name)
		}
	}
	b.WriteString("\n")
}

// writeStealing compares stealing with gradient codes, and with the default policy and equal shares alone.
func writeStealing(b *bytes.Buffer, all []*balsim.Trace, done runs) {
	name := loadbal.Names()[0]
	const equal, code, best = "equal", "code", "code with foresight"
	with := func(policy string) string { return policy + ", stealing" }
	other := make(runs)
	for i, t := range all {
		for _, policy := range []string{name, equal} {
			run := done[policy][i]
			other[policy] = append(other[policy], run)
			other[with(policy)] = append(other[with(policy)], balsim.Stealing(t, run))
		}
		other[code] = append(other[code], balsim.Coded(t, done[equal][i], false))
		other[best] = append(other[best], balsim.Coded(t, done[equal][i], true))
	}
	b.WriteString(stealing)
	rows := other.table([]string{name, with(name), equal, with(equal), code, best}, (*balsim.Run).Efficiency)
	write(b, all, rows, true)
	b.WriteString("Stealing moves this percentage of all microbatches:\n\n")
	write(b, all, other.table([]string{with(name), with(equal)}, (*balsim.Run).Moved), false)
	fmt.Fprintf(b, "%s\n\n", conclusion(rows, with(name), code, best))
}

// conclusion says why codes are not built.
func conclusion(rows []row, stealing, code, best string) string {
	low := func(name string) string { return percent(slices.Min(figures(rows, name))) }
	high := func(name string) string { return percent(slices.Max(figures(rows, name))) }
	return fmt.Sprintf("Gradient codes reach %s to %s %% of foresight, %s to %s %% if they know the speeds in advance, and the default policy with stealing %s %% or more.",
		low(code), high(code), low(best), high(best), low(stealing))
}

// figures returns the figures of the row with the given name.
func figures(rows []row, name string) []int64 {
	return rows[slices.IndexFunc(rows, func(r row) bool { return r.name == name })].figures
}

// writeSettling writes after how many steps each policy reaches the best shares of four peers.
func writeSettling(b *bytes.Buffer) error {
	const from, to = 50, 120
	step, fixed := balsim.Step(plotPeers, 2*to, from, to), balsim.FixedCost(plotPeers, 200)
	step.Microbatches, step.Noise, fixed.Noise = 512, 5, 5
	fmt.Fprintf(b, settling, from, to-1)
	for _, name := range loadbal.Names() {
		run, err := simulate(step, name)
		if err != nil {
			return err
		}
		stay, err := simulate(fixed, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %d |\n", name, settled(step, run, from, to), settled(step, run, to, 2*to),
			settled(fixed, stay, 0, len(stay.Took)), stay.Changes(6))
	}
	b.WriteString("\n")
	return nil
}

// settled returns the number of steps after step from until the spread of times stays, up to step
// to, within 5 points of the spread with the best shares.
func settled(t *balsim.Trace, run *balsim.Run, from, to int) string {
	at := to
	for at > from && t.Excess(at-1, run.Shares[at-1]) <= 50 {
		at--
	}
	if at == to {
		return "never"
	}
	return strconv.Itoa(at - from)
}

// writeNoise writes the results for equal peers with increasing noise.
func writeNoise(b *bytes.Buffer) error {
	noises := []int64{0, 10, 20, 50, 100}
	b.WriteString("| policy |")
	for _, n := range noises {
		fmt.Fprintf(b, " %d %% |", n/10)
	}
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", len(noises)) + "\n")
	for _, name := range loadbal.Names() {
		fmt.Fprintf(b, "| %s |", name)
		for _, n := range noises {
			t := balsim.Homogeneous(peers, plotSteps)
			t.Noise = n
			r, err := simulate(t, name)
			if err != nil {
				return err
			}
			fmt.Fprintf(b, " %d, %s |", r.Changes(1), percent(r.Efficiency()))
		}
		b.WriteString("\n")
	}
	b.WriteString("\n")
	return nil
}

// writeVariants writes the comparison of the variants of the forecast.
func writeVariants(b *bytes.Buffer, all []*balsim.Trace, done runs) {
	b.WriteString(predicting)
	names := loadbal.Variants()
	rows := done.table(names, (*balsim.Run).Efficiency)
	write(b, all, rows, true)
	b.WriteString("The next table has the mean error of the forecast of a peer's time, as a percentage of the time, from step 100 on:\n\n")
	misses := done.table(names, func(r *balsim.Run) int64 { return r.Miss(100) })
	write(b, all, misses, false)
	first, last := names[0], names[len(names)-1]
	fmt.Fprintf(b, "In the mean, `%s` is ahead of `%s` by %s points of speed, and the mean error of its forecasts is %s %% instead of %s %%. So \"narx\" is the default.\n\n",
		first, last, percent(mean(rows, first)-mean(rows, last)), percent(mean(misses, first)), percent(mean(misses, last)))
}

// mean returns the mean of the row with the given name.
func mean(rows []row, name string) int64 {
	for _, r := range rows {
		if r.name == name {
			return r.mean()
		}
	}
	return 0
}

const opening = `# Load balancing

With equal shares of microbatches, a step takes as long as the slowest peer. So elrun gives each peer a share
that follows its measured speed. Between two steps each peer computes the shares of all peers from the reports
of all peers about the last step. The computation uses integers only, so all peers compute the same shares. The
package ` + "`loadbal`" + ` has the policies that decide the shares; this page compares them. ` + "`make balance-report`" + ` writes
this page and the plots.

## Settings

No setting is needed. ` + "`elrun status`" + ` shows the peers' shares and speeds, the predicted and the measured time of
a step, and the reason of the last change of the shares. The event log has each change (` + "`shares`" + `) and the times
of each step. To change how shares are decided, set these fields of ` + "`trainer.Balancing`" + `, or these flags of
` + "`bin/mnist`" + `:

| setting | flag | what it does |
| --- | --- | --- |
| Policy | ` + "`--balance POLICY`" + ` | one of the policies below; "equal" turns balancing off |
| MaxShare | ` + "`--max-share N`" + ` | the most microbatches that this peer computes in a step, for example because its memory is small |
| Admit | ` + "`--admit always`" + ` | also admits peers that do not shorten the steps: see [elastic membership](elastic.md) |
| Steal | ` + "`--steal off`" + ` | each peer computes its share and no other microbatch. Otherwise a peer that is early takes microbatches that a late peer of its host has not begun, within the step ([stealing](internals/stealing.md)). With ` + "`--steal far`" + ` it also takes those of late peers of other hosts, where a step takes at least ten round trips |

If the error of a model wraps ` + "`trainer.ErrOutOfMemory`" + `, the step is repeated. From then on the peer passes half
as many microbatches to the model in one call; if a call has a single microbatch, the peer gets at most half of
its share. Different shares change only the last bits of the result, and in exact mode no bits.

## The model

All policies use one model: a peer needs the time a + c b for a share of b microbatches. The number a is the
*fixed part*, and c is the *pace*. The best whole shares result if each microbatch in turn is given to the peer
that would finish it first. ` + "`loadbal.Optimum`" + ` computes the same shares faster, by a search for the time of the
step. A test compares it with a search over all shares, in 10,000 random cases. For 10,000 peers and 320,000
microbatches ` + "`loadbal.Optimum`" + ` takes 0.8 ms on one core of a Xeon server. A whole decision of the default
policy, with the forecasts, takes 11 ms (` + "`go test -run - -bench . ./loadbal`" + `).

| policy | what it does |
| --- | --- |
| equal | gives all peers the same share |
| proportional | gives shares in proportion to the speeds, the median of five steps; assumes that a is 0 |
| lbb | LBB: depends on the spread of the peers' times, (longest - shortest) / mean. Below 5 % the shares stay, below 30 % one microbatch moves from the slowest to the fastest peer, and from 30 % on the policy computes the best shares |
| lbbsp-gpu | LB-BSP for accelerators: after each window of steps moves microbatches from the slowest to the fastest peer. If the fastest peer is then the slowest, or the slowest the fastest, the next move has half as many microbatches, and the window gets longer |
| lbbsp-cpu | LB-BSP for processors: predicts c for the next step and computes the best shares. In addition to the published policy, this one learns a, uses the mean of many steps if forecasts were worse than this mean, and keeps the shares if other shares would gain less than the noise |

The default policy ` + "`lbbsp-cpu`" + ` learns the fixed part a only from pairs of successive steps with different
shares. It smooths c with a gain that is high if the last errors have the same sign. A peer counts as slower
after one slow step, but as faster only after two fast steps. The reason is the cost of a mistake: if a peer is
wrongly taken for slow, the other peers compute a little more, but if a peer is wrongly taken for fast, a whole
step takes longer.

Noise may make the learned a far too large. Such an error would never be corrected: no change of the shares
seems to help, so the shares stay, and the policy learns nothing more. So the policy resets the a of a peer if,
in four steps in a row, the peer is by far the slowest, has a learned a of at least half its share, and could
have a smaller share. After the first time this takes 256 steps in a row.

All policies take the time of a step to follow the share. In some programs it does not: the step may wait for
data, or its time may be the same for any number of samples. Then each measurement would confirm the last shares,
whatever they are, and noise would move them to the extremes. Past times cannot show this: a peer that was slow by
chance gets a smaller share, and is faster in the next step in any case. So the default policy tests shares that
are far from equal ones, where a peer has less than three quarters of an equal share. For 2 to 16 steps, every other
step has shares that are nearer to equal ones. If the times do not change as the policy predicts, the peers get
equal shares for 128 steps, and for up to 1,024 steps after more such tests. The wait ends early if the policy
promises far more than the failed test. If the times do change, the next test follows after 128 to 4,096 steps.
The first test begins after 4 to 256 steps: the lower the noise, the later, as low noise moves shares slowly.
Shares that differ from equal ones by much more than the time that they gain are not used either. The other
policies have no such test.

On a busy machine the times of past steps say little about later steps. Shares that follow these times take work
from the peer that was slow last, by chance. So the default policy keeps two sets of shares: one by the
forecast, and one by the mean of the last 64 steps. After each step the policy compares the step times that the
two sets would have had. The default uses the means unless the forecast has been at least as good lately. After
a jump of a time far outside the noise, the default uses the forecast at once, unless the forecast has been
worse by more than 3 % lately. The short step at the end of a pass has shares of its own. The full steps after
it start with the shares of the last full step.

## Ranking

The table compares the policies by the speed over the whole run, from equal shares in the first step on. There
are 64 simulated peers, 600 steps, 32 microbatches for each peer, and noise of 2 % in the times. The last two
columns are recordings of four processes on a busy machine with two cores. The speed is a percentage of the
speed with *foresight*: a simulated oracle that knows each peer's a and c of the next step and takes the best
whole shares for them. Foresight does not know the noise, which affects its steps as well. In the recordings,
noise and changes of the speed cannot be separated, and foresight knows both. So no policy comes near foresight
there. The recorded times vary strongly and hardly depend on earlier times, so equal shares are about the best
choice.

`

const stealing = `## Stealing and codes

Within a step, peers of a host [steal](internals/stealing.md) from each other. Gradient codes are the other way not
to wait for a late peer: the peers are in pairs, both compute the shares of both, and the first result counts (s = 1,
"code"). This costs twice the work in each step. With foresight the pairs get the best shares for the faster peer of
each. The table has the same runs and the same measure as the last one. With stealing all 64 peers are on one host,
and a theft takes 20 µs. Thieves see the noise, which foresight does not know, so they may exceed 100 %. The peers of
the recordings were slow because others used their cores; there the simulation does not slow these others down when
a thief computes more, so a real job gains less.

`

const changing = `## Changes of the shares

The next table has the percentage of the steps, from step 20 on, whose shares differ from the shares of the step
before:

`

const settling = `The next table shows how fast the policies adapt. The *spread* is (longest - shortest) / mean of the peers'
times. The columns have the number of steps until the spread comes, and stays, within 5 percentage points of the
spread with the best whole shares. The noise is 0.5 %%. *Slower*: one of four peers gets 4 times slower, with 512
microbatches (steps %d to %d). *Fast again*: after these steps this peer is as fast as before. *Fixed cost*: 128
microbatches, from equal shares in the first step on; each peer has a fixed part that dominates, the time of 20
to 80 microbatches. *Changes*: in the case of the fixed cost, how many of the steps from 6 to 199 changed the
shares.

| policy | slower | fast again | fixed cost | changes |
| --- | ---: | ---: | ---: | ---: |
`

const noisy = `Between equal peers the shares should stay equal, however noisy the times are. The next table has two numbers
for each standard deviation of the times, for 64 peers and 170 steps: the number of steps in which shares
changed, and the speed as in the first table.

`

const predicting = `## Ways to predict

` + "`lbbsp-cpu`" + ` can predict the pace in three ways. "plain" expects that each peer keeps its smoothed pace. "season"
also finds the period after which a peer repeats its jumps, and forecasts the next jump. "narx" is a small
neural network. Its inputs are the other two forecasts, the last changes of the peer's pace and the mean change
over all peers. The network learns while the job runs, in fixed-point arithmetic. The next table has the speeds
as in the first table:

`

const plots = `## Shares and times

Each row of a plot is a policy. On the left are the shares of %d peers over %d steps. On the right are the time of
each step (black) and the time with foresight (red).

`
