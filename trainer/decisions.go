package trainer

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
)

// decisions manages the decision points of a run, at which the programs of all peers decide
// together. A decision is agreed on in the same way as a step:
//
//  1. All ranks gather their knowledge of the point after the committed step: its sums, and whether
//     it is concluded. A rank adopts the sums that it lacks, because a sum is the same at all ranks.
//  2. Each program decides, unless it has already decided for that step.
//  3. All ranks gather the decisions. The decision of the rank that has seen most points is carried
//     out, because a newcomer's program has not seen the earlier points. A rank that has all
//     decisions concludes the point.
//
// A session may end between any two of these stages. If a point is concluded at one rank, all ranks
// have decided.
type decisions struct {
	group  *elastic.Group
	params [][]float32  // the model's memory
	of     func() int64 // returns the number of steps of the whole job, which falls when the batch grows
	every  int64        // steps between two points; 0 for no points
	// endsPass, if set, reports whether a point follows a step, in place of every.
	endsPass func(step int64) bool
	// show shows a point to the program. It returns false if the program leaves the loop.
	show func(*Point) bool

	// point is the current point.
	point point
	epoch uint64 // epoch in which all ranks have gathered the point
	// seen is the number of points at which this program has decided.
	seen    int64
	kept    int64       // step of the kept model; 0 for none
	copied  [][]float32 // parameters of the kept model
	stopped bool        // the job ends after the committed step
	left    bool        // the program has left its loop
}

// point is a rank's knowledge of the point after a step.
type point struct {
	step    int64
	sums    [][totalWords]int64 // results of Point.Sum and Point.Add, in the order of the calls
	decided bool                // this rank's program has decided
	// stop is the decision of this rank's program, or the common decision once the point is
	// concluded.
	stop      bool
	keep      bool // the decision to keep the model; like stop
	concluded bool // all ranks have decided
}

// maxSums is the largest number of sums of a point. All reports have room for that number, so that
// they are equally long.
const maxSums = 8

// pointReport is the message of a rank about a point.
type pointReport struct {
	point      point
	seen, kept int64
}

// pointReportWords is the length of an encoded report, in words.
const pointReportWords = 4 + totalWords*maxSums

// words encodes the report.
func (p pointReport) words() []int64 {
	w := make([]int64, pointReportWords)
	for i, flag := range []bool{p.point.decided, p.point.stop, p.point.keep, p.point.concluded} {
		if flag {
			w[0] |= 1 << i
		}
	}
	w[1], w[2], w[3] = p.seen, p.kept, int64(len(p.point.sums))
	for i, s := range p.point.sums {
		copy(w[4+totalWords*i:], s[:])
	}
	return w
}

// pointReportOf decodes the report of a point after a step.
func pointReportOf(w []int64, step int64) pointReport {
	flag := func(i int) bool { return w[0]>>i&1 != 0 }
	v := pointReport{point{step: step, decided: flag(0), stop: flag(1), keep: flag(2), concluded: flag(3)}, w[1], w[2]}
	for i := range min(max(0, w[3]), maxSums) {
		v.point.sums = append(v.point.sums, [totalWords]int64(w[4+totalWords*i:]))
	}
	return v
}

// totalWords is the number of words of a sum: a score has three.
const totalWords = 3

// encodeScore encodes a score in words.
func encodeScore(s Score) [totalWords]int64 {
	return [totalWords]int64{int64(s.Samples), int64(s.Correct), int64(math.Float64bits(s.Loss))}
}

// decodeScore decodes the words of encodeScore.
func decodeScore(w [totalWords]int64) Score {
	return Score{int(w[0]), int(w[1]), math.Float64frombits(uint64(w[2]))}
}

// encodeNumbers encodes up to three numbers in words.
func encodeNumbers(numbers []float64) (w [totalWords]int64) {
	for i, x := range numbers {
		w[i] = int64(math.Float64bits(x))
	}
	return w
}

// decodeNumbers decodes n numbers of encodeNumbers.
func decodeNumbers(w [totalWords]int64, n int) []float64 {
	var all []float64
	for _, x := range w[:n] {
		all = append(all, math.Float64frombits(uint64(x)))
	}
	return all
}

// merge returns a rank's knowledge of a point after a gather. It treats all ranks alike, so all
// ranks get the same result, except for the decisions of their own programs.
func (p point) merge(all []pointReport) point {
	for _, v := range all {
		if len(v.point.sums) > len(p.sums) {
			p.sums = v.point.sums
		}
		if v.point.concluded {
			p.stop, p.keep, p.decided, p.concluded = v.point.stop, v.point.keep, true, true
		}
	}
	return p
}

// decision returns the decision to carry out: the decision of the rank that has seen most points,
// or of the lowest such rank if there are several.
func decision(all []pointReport) pointReport {
	return slices.MaxFunc(all, func(a, b pointReport) int { return int(a.seen - b.seen) }) // the first of equals
}

// holder returns the lowest rank that has the last kept model, or -1 if none was kept, and
// whether all ranks have it.
func holder(all []pointReport) (rank int, everywhere bool) {
	newest := slices.MaxFunc(all, func(a, b pointReport) int { return int(a.kept - b.kept) }).kept
	if newest == 0 {
		return -1, true
	}
	has := func(v pointReport) bool { return v.kept == newest }
	return slices.IndexFunc(all, has), !slices.ContainsFunc(all, func(v pointReport) bool { return !has(v) })
}

// due reports whether a point follows a step. A point always follows the last step.
func (d *decisions) due(step int64) bool {
	if d.every == 0 || step <= 0 {
		return false
	}
	if d.endsPass != nil && d.endsPass(step) || d.endsPass == nil && step%d.every == 0 {
		return true
	}
	return step >= d.of()
}

// open begins the point after a step. It reports whether there is a point that is not concluded,
// or that was not gathered in this session.
func (d *decisions) open(step int64, epoch uint64) bool {
	if !d.due(step) {
		return false
	}
	if d.point.step != step {
		d.point = point{step: step}
	}
	return !d.point.concluded || d.epoch != epoch
}

// decide runs the protocol for the point after the committed step, if there is one.
func (d *decisions) decide(ctx context.Context, s *elastic.Session, committed int64) error {
	if !d.open(committed, s.View.Epoch) {
		return nil
	}
	all, err := d.exchangePoints(ctx, s)
	if err != nil {
		return err
	}
	// was is true if this rank concluded the point in an earlier session. Then it has also
	// carried out the decision.
	was := d.point.concluded
	d.point, d.epoch = d.point.merge(all), s.View.Epoch
	if err := d.shareKept(ctx, s, all); err != nil {
		return err
	}
	// The point is already decided if a session broke after the program's decision, or if another
	// rank has concluded it.
	if !d.point.decided {
		if err := d.showPoint(ctx, s); err != nil {
			return err
		}
	}
	if !d.point.concluded {
		if all, err = d.exchangePoints(ctx, s); err != nil {
			return err
		}
		// Every rank has all decisions, so every rank chooses the same decision.
		counts := decision(all)
		d.point.stop, d.point.keep, d.point.concluded = counts.point.stop, counts.point.keep, true
	}
	if !was {
		d.carryOut()
	}
	return nil
}

// exchangePoints gathers the reports of all ranks about the point.
func (d *decisions) exchangePoints(ctx context.Context, s *elastic.Session) ([]pointReport, error) {
	mine := pointReport{d.point, d.seen, d.kept}.words()
	words := make([]int64, len(s.View.Members)*pointReportWords)
	if err := collective.AllGather(ctx, s.Comm.With(collective.CallOptions{For: "decision"}), words, mine); err != nil {
		return nil, fmt.Errorf("decide after step %d: %w", d.point.step, err)
	}
	var all []pointReport
	for w := range slices.Chunk(words, pointReportWords) {
		all = append(all, pointReportOf(w, d.point.step))
	}
	return all, nil
}

// shareKept sends the kept model to the ranks that lack it.
func (d *decisions) shareKept(ctx context.Context, s *elastic.Session, all []pointReport) error {
	from, everywhere := holder(all)
	if everywhere {
		return nil
	}
	// The values that were copied before belong to an older kept model.
	if d.kept != all[from].kept {
		d.copied, d.kept = nil, 0
	}
	copied := d.copied
	for i, p := range d.params {
		if len(copied) <= i {
			copied = append(copied, make([]float32, len(p)))
		}
		if err := collective.Broadcast(ctx, s.Comm.With(collective.CallOptions{For: "kept model"}), copied[i], from); err != nil {
			return fmt.Errorf("take over the model of step %d: %w", all[from].kept, err)
		}
	}
	d.copied, d.kept = copied, all[from].kept
	return nil
}

// showPoint shows the point to the program. A nil session means that this peer is alone.
func (d *decisions) showPoint(ctx context.Context, s *elastic.Session) error {
	if d.left {
		return d.leftLoop(s)
	}
	p := &Point{Step: d.point.step, Of: d.of(), decisions: d, ctx: ctx, session: s, idle: d.busy(s), begun: time.Now()}
	// A panic in the program must not leave the others waiting.
	returned := false
	defer func() {
		if p.idle(); !returned && s != nil {
			s.Comm.Revoke(errGone)
		}
	}()
	d.left = !d.show(p)
	returned = true
	switch {
	case p.failed != nil:
		if s != nil {
			s.Comm.Revoke(p.failed)
		}
		return p.failed
	// Leaving the loop is allowed only after Stop, at a point whose sums have succeeded.
	case d.left && (p.broken != nil || !p.stop):
		return d.leftLoop(s)
	case p.broken != nil:
		return p.broken
	}
	d.point.decided, d.point.stop, d.point.keep = true, p.stop, p.keep
	d.seen++
	return nil
}

// busy marks this peer as deciding until idle is called, so that the others do not suspect it of
// being hung.
func (d *decisions) busy(s *elastic.Session) (idle func()) {
	const what = "deciding"
	if s == nil {
		return d.group.Busy(what)
	}
	return s.Busy(what)
}

// leftLoop ends the session, if there is one, because the program has left its loop.
func (d *decisions) leftLoop(s *elastic.Session) error {
	err := fmt.Errorf("the program has left the loop of Points after step %d: call Point.Stop, so that all peers end there", d.point.step)
	if s != nil {
		s.Comm.Revoke(err)
	}
	return err
}

// decideAlone replaces decide at a peer that gets no further session.
func (d *decisions) decideAlone(ctx context.Context, committed int64) error {
	if !d.open(committed, d.epoch) {
		return nil
	}
	if !d.point.decided {
		if err := d.showPoint(ctx, nil); err != nil {
			return err
		}
	}
	d.point.concluded = true
	d.carryOut()
	return nil
}

// carryOut executes the decision of a concluded point: it copies the model, or ends the job after
// this step.
func (d *decisions) carryOut() {
	if d.point.keep {
		d.copied, d.kept = nil, d.point.step
		for _, v := range d.params {
			d.copied = append(d.copied, slices.Clone(v))
		}
	}
	d.stopped = d.stopped || d.point.stop
}

// settings returns the settings of points that all members must share; nil without points.
func (d *decisions) settings() []elastic.Setting {
	if d.every == 0 {
		return nil
	}
	return []elastic.Setting{{Name: "steps between points", Value: fmt.Sprint(d.every)}}
}
