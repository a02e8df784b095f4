package elastic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"

	"github.com/elrun/elrun/collective"
)

// ReportKind tells how Turn.Report combines the values of the peers.
type ReportKind uint8

const (
	// ReportMean, the default, is the mean over the peers that have reported the value.
	ReportMean ReportKind = iota
	// ReportSum is the sum over these peers.
	ReportSum
)

// Bounds of Turn.Report.
const (
	maxMetrics    = 16 // different names, over all peers
	maxMetricName = 40 // bytes of a name
	// metricHead is the number of bytes of an encoded metric before its name.
	metricHead = 10
	// maxMetricBytes bounds the encoded metrics of a member.
	maxMetricBytes = maxMetrics * (metricHead + maxMetricName)
)

// metric is a value that a member has reported under a name.
type metric struct {
	name  string
	value float64
	kind  ReportKind
}

// Report reports a value of this step under a name, such as "loss", for the progress line of elrun,
// elrun status and the step events of the log. If the step is committed, the mean over the peers
// that have reported the value is shown, and with ReportSum as kind the sum. All peers count equally
// in the mean: for a mean over samples each peer reports its sum over its samples, divided by the
// samples of the step, with ReportSum.
//
//	t.Report("loss", sum/batch, elastic.ReportSum)
//
// A value counts once: the last one that a peer has reported under the name since the last step
// event, as of fast steps only some have an event. Any peers may report in any steps. A step event
// with values costs one collective call of all peers; a loop that reports nothing makes none.
//
// These mistakes end the loop at all peers: a value that is not finite, a name that is empty, longer
// than 40 bytes or has characters that cannot be printed, more than 16 names over all peers, and a
// name with different kinds.
func (t *Turn) Report(name string, x float64, kind ...ReportKind) {
	m := metric{name: name, value: x}
	for _, k := range kind {
		m.kind = k
	}
	err := m.check()
	if err == nil {
		t.metrics, err = addMetric(t.metrics, m)
	}
	if err != nil && t.wrong == nil {
		t.wrong = fmt.Errorf("Turn.Report(%.60q, %v) in step %d: %w", name, x, t.step, err)
	}
}

// check returns an error for a metric that cannot be reported.
func (m metric) check() error {
	switch {
	case math.IsNaN(m.value) || math.IsInf(m.value, 0):
		return errors.New("the value is not finite: report it only if it is, and end a training that diverges by Turn.Fail or Turn.Stop")
	case m.name == "" || len(m.name) > maxMetricName:
		return fmt.Errorf("the name has %d bytes: want 1 to %d", len(m.name), maxMetricName)
	case strings.ContainsFunc(m.name, func(r rune) bool { return r == unicode.ReplacementChar || !unicode.IsPrint(r) }):
		return errors.New("the name has characters that cannot be printed: use letters, digits and signs")
	case m.kind > ReportSum:
		return fmt.Errorf("unknown kind %d: want ReportMean or ReportSum", m.kind)
	}
	return nil
}

// addMetric returns all with m, which replaces an earlier value of the name.
func addMetric(all []metric, m metric) ([]metric, error) {
	i := slices.IndexFunc(all, func(other metric) bool { return other.name == m.name })
	switch {
	case i < 0 && len(all) == maxMetrics:
		return all, fmt.Errorf("a loop reports at most %d names: leave out some", maxMetrics)
	case i < 0:
		return append(all, m), nil
	case all[i].kind != m.kind:
		return all, errKinds
	}
	all[i].value = m.value
	return all, nil
}

// errKinds means that a name was reported with different kinds.
var errKinds = errors.New("it is reported as a mean and as a sum: use one kind for a name, at all peers")

// encodeMetrics returns the encoded metrics, at most maxMetricBytes: for each the kind, the value,
// the length of the name, and the name.
func encodeMetrics(all []metric) []byte {
	var b []byte
	for _, m := range all {
		b = append(b, byte(m.kind))
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(m.value))
		b = append(append(b, byte(len(m.name))), m.name...)
	}
	return b
}

// decodeMetrics is the inverse of encodeMetrics. The bytes come from another member.
func decodeMetrics(b []byte) (all []metric, err error) {
	for len(b) > 0 {
		if len(b) < metricHead || len(b) < metricHead+int(b[metricHead-1]) {
			return nil, errors.New("a value is cut off")
		}
		end := metricHead + int(b[metricHead-1])
		m := metric{string(b[metricHead:end]), math.Float64frombits(binary.LittleEndian.Uint64(b[1:])), ReportKind(b[0])}
		if err := m.check(); err != nil {
			return nil, err
		}
		if all, err = addMetric(all, m); err != nil {
			return nil, err
		}
		b = b[end:]
	}
	return all, nil
}

// combineMetrics combines the metrics of all ranks. It is a pure function, so all members get the
// same values, or the same error.
func combineMetrics(ranks [][]metric) (map[string]float64, error) {
	var sums []metric
	count := make(map[string]float64)
	for _, m := range slices.Concat(ranks...) {
		sum := m
		if i := slices.IndexFunc(sums, func(other metric) bool { return other.name == m.name }); i >= 0 {
			// The log cannot represent an infinite sum.
			sum.value = min(max(sums[i].value+m.value, -math.MaxFloat64), math.MaxFloat64)
		}
		var err error
		if sums, err = addMetric(sums, sum); err != nil {
			return nil, mistakef("Turn.Report(%q): %w", m.name, err)
		}
		count[m.name]++
	}
	out := make(map[string]float64)
	for _, m := range sums {
		if out[m.name] = m.value; m.kind == ReportMean {
			out[m.name] /= count[m.name]
		}
	}
	return out, nil
}

// unlogged returns the metrics of this member that are in no step event yet, with those of t.
func (l *loop) unlogged(t *Turn) ([]metric, error) {
	all := slices.Clone(l.group.loops.metrics)
	for _, m := range t.metrics {
		var err error
		if all, err = addMetric(all, m); err != nil {
			return nil, fmt.Errorf("Turn.Report(%q) in step %d: %w", m.name, t.step, err)
		}
	}
	return all, nil
}

// gatherMetrics returns the combined metrics of all members; mine are those of this member. It
// exchanges them only if a member has some and a member writes a step event (record.logs), and
// otherwise returns nil. All members make the same decision, from the records.
func (l *loop) gatherMetrics(s *Session, mine []metric, all []record) (map[string]float64, error) {
	if !slices.ContainsFunc(all, func(r record) bool { return r.logs }) || !slices.ContainsFunc(all, func(r record) bool { return r.metrics != 0 }) {
		return nil, nil
	}
	counts, total := make([]int, len(all)), 0
	for rank, r := range all {
		if r.metrics < 0 || r.metrics > maxMetricBytes {
			return nil, mistakef("%s reports %d bytes of values: start all peers with one version of the program", s.names()[rank], r.metrics)
		}
		counts[rank], total = r.metrics, total+r.metrics
	}
	l.group.loops.metrics = nil
	bytes := make([]byte, total)
	if err := collective.AllGatherV(l.ctx, s.Comm.With(collective.CallOptions{For: "boundary"}), bytes, encodeMetrics(mine), counts); err != nil {
		return nil, err
	}
	var ranks [][]metric
	for rank, n := range counts {
		decoded, err := decodeMetrics(bytes[:n])
		if err != nil {
			return nil, mistakef("the values that %s reports: %w", s.names()[rank], err)
		}
		ranks, bytes = append(ranks, decoded), bytes[n:]
	}
	return combineMetrics(ranks)
}
