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
	b.WriteString("And the mean error of the forecast of a peer's time, as a percentage of the time, from step 100 on:\n\n")
	misses := done.table(names, func(r *balsim.Run) int64 { return r.Miss(100) })
	write(b, all, misses, false)
	first, last := names[0], names[len(names)-1]
	fmt.Fprintf(b, "In the mean, `%s` is ahead of `%s` by %s points of speed, and its forecasts are off by %s %% instead of %s %%. So it is the default.\n\n",
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

With equal shares a step takes as long as its slowest peer. So each peer's share of the
microbatches follows the speed that was measured. Between two steps each peer
computes the shares of all from the reports of all peers about the last step. It computes in
whole numbers, so all peers come to the same shares. Package ` + "`loadbal`" + ` has the policies; this
page compares them. ` + "`make balance-report`" + ` writes it, with the plots.

## Settings

None is needed. ` + "`elrun status`" + ` shows the peers' shares and speeds, the predicted and the measured
time of a step, and why shares changed last; the event log has each change (` + "`shares`" + `) and each
step's times. To get other shares, set these in ` + "`trainer.Balancing`" + `, or as flags of ` + "`bin/mnist`" + `:

| setting | flag | what it does |
| --- | --- | --- |
| Policy | ` + "`--balance POLICY`" + ` | one of the policies below; "equal" turns balancing off |
| MaxShare | ` + "`--max-share N`" + ` | the most microbatches that this peer computes in a step, as for want of memory |
| Admit | ` + "`--admit always`" + ` | lets in peers with which steps do not get shorter: see [elastic membership](elastic.md) |

A model whose error wraps ` + "`trainer.ErrOutOfMemory`" + ` gets half of its share from then on, and the
step goes on. Shares change only the last bits of the result, and in exact mode nothing.

## The model

A share of b microbatches takes a peer the time a + c b. The best whole shares come
out if each microbatch in turn is given to the peer that would then be done first. ` + "`loadbal.Optimum`" + `
finds them, in whole numbers, by a search for the step's time. In 10,000 random cases the
result equals the result of a search over all shares. For 10,000 peers and 320,000 microbatches it takes
0.8 ms on one core of a Xeon server, and a whole decision of the default policy, with the
forecasts, 11 ms (` + "`go test -run - -bench . ./loadbal`" + `).

| policy | what it does |
| --- | --- |
| equal | the same for all |
| proportional | in proportion to the speed, the median of five steps; a is taken to be 0 |
| lbb | LBB: holds while times are within 5 %, moves one microbatch while within 30 %, solves again beyond 30 % |
| lbbsp-gpu | LB-BSP for accelerators: after each window of steps moves microbatches from the slowest to the fastest; half as many and a longer window if the two change places |
| lbbsp-cpu | LB-BSP for processors: predicts c for the next step and solves; here it also learns a, follows the mean of many steps where forecasts were worse, and keeps shares if the gain of other shares is below the noise |

The fixed part a is learned only from steps between which a share changed, and c is
followed with a gain that depends on whether the last errors agree. A peer counts as slower after
one slow step, and as faster only after two fast steps. For a peer that is wrongly taken for slow
costs the others a little, and a peer that is wrongly taken for fast costs a whole step.

With noise the learned a may be far too large, and would never be corrected: a change of shares
then seems to gain nothing, so shares stay, and nothing more is learned. So the policy forgets
the a of a peer whose time seems not to depend on its share, if the peer holds up all others
for four steps in a row though it could have less.

On a busy machine the times of past steps say little about later steps. Shares that follow
them take work from the peer that happened to be slow last. So the default keeps a second set of shares, made from the
mean of the last 64 steps, and compares after each step the times of both. While
the forecast's shares are not ahead the default goes by the mean. After a jump of a time far
outside the noise it goes by the forecast again at once, unless the forecast was behind by more
than 3 % lately. The
short step at the end of a pass has shares of its own. The full steps after it go on with
the shares of the last full step: the short step alone is no reason to change them.

## Ranking

64 simulated peers, 600 steps, 32 microbatches for each peer, times disturbed by 2 %; the
last two columns are recordings of four processes on a busy machine with two cores. Figures are the
speed over the whole run, from equal shares in the first step on, as a percentage of the speed
with *foresight*. Foresight knows each peer's a and c of the next step and takes the best whole
shares for them. It does not know the noise, which disturbs its steps as well. In the recordings
noise cannot be told from speed. Foresight knows both, so no policy can come near it. Times
there vary by as much as they last and hardly depend on earlier times, so equal shares are
about the best choice.

`

const changing = `How many steps had other shares than the step before, as a percentage, from step 20 on:

`

const settling = `The table gives the number of steps until the spread of the peers' times, (longest -
shortest) / mean, comes within 5 percentage points of the spread with the best whole shares,
and stays there. Times are disturbed by 0.5 %%. *Slower*: four peers and 512 microbatches,
after one peer gets 4 times slower (steps %d to %d). *Fast again*: after that peer is as fast
as before. *Fixed cost*: 128 microbatches, from equal shares in the first step on, with a fixed
cost of each peer that dominates: the time of 20 to 80 microbatches. *Changes*: how many of the
steps from 6 to 199 changed shares in the case with the fixed cost.

| policy | slower | fast again | fixed cost | changes |
| --- | ---: | ---: | ---: | ---: |
`

const noisy = `Between equal peers shares must not wander, however much times vary. The table has the number of
steps in which shares changed, and the speed as above, by the standard deviation of the times,
for 64 peers and 170 steps.

`

const predicting = `## Ways to predict

` + "`lbbsp-cpu`" + ` predicts in one of three ways. "plain" expects each peer to go on as it does.
"season" also finds after how many steps a peer repeats its jumps, and expects them. "narx"
is a small neural network. Its inputs are the other two forecasts, the last changes of the peer
and the mean change of all peers. It learns while it runs, in fixed point. The speeds, as above:

`

const plots = `## Shares and times

Each row is a policy: on the left the shares of %d peers over %d steps, on the right the
time of each step (black) and the time with foresight (red).

`
