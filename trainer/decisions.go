package trainer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
)

// decisions are the points of a run, at which programs decide. What a program sees and decides
// at one is agreed on as a step is:
//
//  1. All tell what they have of the point after the committed step: sums, and whether it is
//     concluded. Whoever has less takes that of the others: a sum that one rank has is the sum.
//  2. Each program decides, unless it has done so for that step.
//  3. All tell their decisions. That of the rank that has seen most points counts, as newcomers
//     know nothing of those before. Whoever hears all concludes the point.
//
// A session may end anywhere. Who has concluded a point shows that all had decided.
type decisions struct {
	group  *elastic.Group
	params [][]float32       // the model's memory
	of     int64             // steps of the whole job
	every  int64             // between points; 0 for none
	show   func(*Point) bool // shows a point to the program, which returns whether it goes on

	point   point
	epoch   uint64      // in which all have told what they have of it
	seen    int64       // points that the program has decided at
	kept    int64       // step of the model that was kept; 0 for none
	copied  [][]float32 // which is this
	stopped bool        // the job ends after the committed step
	left    bool        // the program has left its loop
}

// point is what a rank has of the point after a step.
type point struct {
	step      int64
	sums      []Score // in the order of the calls
	decided   bool    // the program has decided
	stop      bool    // what it has decided, or all, if that is concluded
	keep      bool
	concluded bool
}

// maxSums is how many sums a point may have.
const maxSums = 4

// pointReport is what a rank tells of a point.
type pointReport struct {
	point
	seen, kept int64
}

// pointReportWords is the number of words of a view on the wire.
const pointReportWords = 4 + 3*maxSums

// words encodes the view.
func (v pointReport) words() []int64 {
	w := make([]int64, pointReportWords)
	for i, flag := range []bool{v.decided, v.stop, v.keep, v.concluded} {
		if flag {
			w[0] |= 1 << i
		}
	}
	w[1], w[2], w[3] = v.seen, v.kept, int64(len(v.sums))
	for i, s := range v.sums {
		putScore(w[4+3*i:], s)
	}
	return w
}

// pointReportOf decodes what words wrote, of a point after a step.
func pointReportOf(w []int64, step int64) pointReport {
	flag := func(i int) bool { return w[0]>>i&1 != 0 }
	v := pointReport{point{step: step, decided: flag(0), stop: flag(1), keep: flag(2), concluded: flag(3)}, w[1], w[2]}
	for i := range min(max(0, w[3]), maxSums) {
		v.sums = append(v.sums, getScore(w[4+3*i:]))
	}
	return v
}

// putScore writes a score as three words, and getScore reads it.
func putScore(w []int64, s Score) {
	w[0], w[1], w[2] = int64(s.Samples), int64(s.Correct), int64(math.Float64bits(s.Loss))
}

func getScore(w []int64) Score {
	return Score{int(w[0]), int(w[1]), math.Float64frombits(uint64(w[2]))}
}

// merge returns what a rank has of a point when all have told what they have. Ranks are not
// told apart, so all come to the same, but for what their programs have decided.
func (p point) merge(all []pointReport) point {
	for _, v := range all {
		if len(v.sums) > len(p.sums) {
			p.sums = v.sums
		}
		if v.concluded {
			p.stop, p.keep, p.decided, p.concluded = v.stop, v.keep, true, true
		}
	}
	return p
}

// decision returns whose decision counts.
func decision(all []pointReport) pointReport {
	return slices.MaxFunc(all, func(a, b pointReport) int { return int(a.seen - b.seen) }) // the first of equals
}

// holder returns the lowest rank that has the model that was kept last, and whether all have it;
// -1 if none was kept.
func holder(all []pointReport) (rank int, everywhere bool) {
	newest := slices.MaxFunc(all, func(a, b pointReport) int { return int(a.kept - b.kept) }).kept
	if newest == 0 {
		return -1, true
	}
	has := func(v pointReport) bool { return v.kept == newest }
	return slices.IndexFunc(all, has), !slices.ContainsFunc(all, func(v pointReport) bool { return !has(v) })
}

// due reports whether there is a point after a step: also after the last one.
func (d *decisions) due(step int64) bool {
	return d.every > 0 && step > 0 && (step%d.every == 0 || step >= d.of)
}

// open begins the point after a step, and reports whether there is one that is not concluded, or
// was not told of in this session.
func (d *decisions) open(step int64, epoch uint64) bool {
	if !d.due(step) {
		return false
	}
	if d.point.step != step {
		d.point = point{step: step}
	}
	return !d.point.concluded || d.epoch != epoch
}

// decide lets the programs decide, if there is a point after the committed step.
func (d *decisions) decide(ctx context.Context, s *elastic.Session, committed int64) error {
	if !d.open(committed, s.View.Epoch) {
		return nil
	}
	all, err := d.exchangePoints(ctx, s)
	if err != nil {
		return err
	}
	was := d.point.concluded
	d.point, d.epoch = d.point.merge(all), s.View.Epoch
	if err := d.shareKept(ctx, s, all); err != nil {
		return err
	}
	if !d.point.decided {
		if err := d.showPoint(ctx, s); err != nil {
			return err
		}
	}
	if !d.point.concluded {
		if all, err = d.exchangePoints(ctx, s); err != nil {
			return err
		}
		counts := decision(all)
		d.point.stop, d.point.keep, d.point.concluded = counts.stop, counts.keep, true
	}
	if !was {
		d.carryOut()
	}
	return nil
}

// exchangePoints tells all what this rank has of the point, and returns what all have.
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

// shareKept gives the model that was kept to those who were not there.
func (d *decisions) shareKept(ctx context.Context, s *elastic.Session, all []pointReport) error {
	from, everywhere := holder(all)
	if everywhere {
		return nil
	}
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

// showPoint shows the point to the program, in a session or, if that is nil, to this peer alone.
func (d *decisions) showPoint(ctx context.Context, s *elastic.Session) error {
	if d.left {
		return d.leftLoop(s)
	}
	p := &Point{Step: d.point.step, Of: d.of, decisions: d, ctx: ctx, session: s, idle: d.busy(s)}
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
	case d.left && (p.broken != nil || !p.stop):
		return d.leftLoop(s)
	case p.broken != nil:
		return p.broken
	}
	d.point.decided, d.point.stop, d.point.keep = true, p.stop, p.keep
	d.seen++
	return nil
}

// busy says that this peer decides, until the function that it returns is called.
func (d *decisions) busy(s *elastic.Session) (idle func()) {
	const what = "deciding"
	if s == nil {
		return d.group.Busy(what)
	}
	return s.Busy(what)
}

// leftLoop ends a session, if there is one, in which the program has left its loop.
func (d *decisions) leftLoop(s *elastic.Session) error {
	err := fmt.Errorf("the program has left the loop of Points after step %d: call Point.Stop, so that all peers end there", d.point.step)
	if s != nil {
		s.Comm.Revoke(err)
	}
	return err
}

// decideAlone is decide for a peer that gets no further session.
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

// carryOut does what was decided at the point.
func (d *decisions) carryOut() {
	if d.point.keep {
		d.copied, d.kept = nil, d.point.step
		for _, v := range d.params {
			d.copied = append(d.copied, slices.Clone(v))
		}
	}
	d.stopped = d.stopped || d.point.stop
}

// sum adds up the parts of a score in rank order.
func (p *Point) sum(part Score) (total Score, err error) {
	if p.session == nil {
		return part, nil
	}
	p.idle() // who waits here is not busy
	defer func() { p.idle = p.decisions.busy(p.session) }()
	const words = 3
	n := len(p.session.View.Members)
	all := make([]int64, n*words)
	putScore(all[p.session.Rank*words:], part)
	if err := collective.AllReduce(p.ctx, p.session.Comm.With(collective.CallOptions{For: "score"}), all, all, collective.Sum[int64]); err != nil {
		return Score{}, fmt.Errorf("share the score after step %d: %w", p.Step, err)
	}
	for w := range slices.Chunk(all, words) {
		s := getScore(w)
		total.Samples, total.Correct, total.Loss = total.Samples+s.Samples, total.Correct+s.Correct, total.Loss+s.Loss
	}
	return total, nil
}

// errSums is the error of a Sum too many.
var errSums = errors.New("a point has at most 4 sums: add up what belongs together")

// settings are what members must have alike; none without points.
func (d *decisions) settings() []elastic.Setting {
	if d.every == 0 {
		return nil
	}
	return []elastic.Setting{{Name: "steps between points", Value: fmt.Sprint(d.every)}}
}
