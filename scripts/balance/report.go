package main

import (
	"bytes"
	"fmt"

	"github.com/elrun/elrun/internal/balsim"
	"github.com/elrun/elrun/loadbal"
)

// report is the text of docs/balancing.md. folder is where the plots are, as seen from
// it.
func report(root, folder string) ([]byte, error) {
	all, err := traces(root)
	if err != nil {
		return nil, err
	}
	b := new(bytes.Buffer)
	b.WriteString(opening)
	rows, err := table(all, loadbal.Names(), (*balsim.Run).Efficiency)
	if err != nil {
		return nil, err
	}
	write(b, all, rows, true)
	fmt.Fprintf(b, "The default is `%s`: %s %% in the mean, %s more than the next one, `%s`, and %s more than equal shares.\n\n", loadbal.Names()[0],
		percent(mean(rows, loadbal.Names()[0])), percent(rows[0].mean()-rows[1].mean()), rows[1].name, percent(rows[0].mean()-mean(rows, "equal")))
	b.WriteString(changing)
	changes := func(r *balsim.Run) int64 { return int64(r.Changes(20)) * 1000 / int64(len(r.Took)-20) }
	if rows, err = table(all, loadbal.Names(), changes); err != nil {
		return nil, err
	}
	write(b, all, rows, false)
	b.WriteString(predicting)
	if rows, err = table(all, loadbal.Variants(), (*balsim.Run).Efficiency); err != nil {
		return nil, err
	}
	write(b, all, rows, true)
	b.WriteString("And the mean error of the forecast of a peer's time, as a percentage of the time, from step 100 on:\n\n")
	miss := func(r *balsim.Run) int64 { return r.Miss(100) }
	if rows, err = table(all, loadbal.Variants(), miss); err != nil {
		return nil, err
	}
	write(b, all, rows, false)
	fmt.Fprintf(b, plots, plotPeers, plotSteps)
	for _, t := range balsim.All(plotPeers, plotSteps) {
		fmt.Fprintf(b, "### %s\n\n%s%s.\n\n![%s](%s/%s)\n\n", t.Name, string(t.About[0]-'a'+'A'), t.About[1:], t.Name, folder, file(t))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// mean of the row of a name.
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
microbatches follows the speed that was measured. Shares are set between steps by a
function of what all peers reported in the last step, in whole numbers: each peer
computes it for itself and comes to the same. Package ` + "`loadbal`" + ` has the policies; this
page compares them. ` + "`go run ./scripts/balance docs/balancing`" + ` writes it.

## The model

A share of b microbatches takes a peer a + c b. The best whole shares are those that come
out if each microbatch is given to the peer that would then be done first. ` + "`loadbal.Optimum`" + `
finds them for 10,000 peers within milliseconds.

| policy | what it does |
| --- | --- |
| equal | the same for all |
| proportional | in proportion to the speed, the median of five steps; a is taken to be 0 |
| lbb | LBB: holds while times are within 5 %, moves one microbatch while within 30 %, solves again beyond |
| lbbsp-gpu | LB-BSP for accelerators: after each window of steps moves microbatches from the slowest to the fastest; half as many and a longer window if the two change places |
| lbbsp-cpu | LB-BSP for processors: predicts c for the next step and solves; here it also learns a, and keeps shares where others would be better by less than the noise |

The fixed part a is learned only from steps between which a share changed, and c is
followed with a gain that depends on whether the last errors agree. That a peer has become
slower is believed at once, that it has become faster when it is seen twice: the first
mistake would cost the others a little, the second would cost a whole step.

## Ranking

64 simulated peers, 600 steps, 32 microbatches for each peer, times disturbed by 2 %; the
last column is a recording of four processes on a machine with two cores. Figures are the
speed over the whole run, from equal shares in the first step on, as a percentage of what
foresight reaches. Foresight knows each peer's a and c in the step to come (but not the
noise, which disturbs it as well) and has the best whole shares for them. In the recording,
noise cannot be told from speed, and foresight knows both: no policy can come near it.

`

const changing = `How many steps had other shares than the step before, as a percentage, from step 20 on:

`

const predicting = `## Ways to predict

` + "`lbbsp-cpu`" + ` predicts in one of three ways. "plain" expects each peer to go on as it does.
"season" also finds after how many steps a peer repeats its jumps, and expects them. "narx"
is a small neural network over what these say, the last changes of the peer and the mean
change of all; it learns while it runs, in fixed point. Their speeds, as above:

`

const plots = `## Shares and times

Each row is a policy; on the left the shares of %d peers over %d steps, on the right the
time of the step (black) and what foresight would have reached (red).

`
