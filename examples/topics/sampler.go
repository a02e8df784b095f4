package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/elastic/parts"
)

// Options are the options of a Sampler, equal at all peers.
type Options struct {
	Topics int           // number of topics, up to 256
	Blocks int           // blocks of the vocabulary
	Chunks int           // pieces with documents
	Copies int           // copies of each piece
	Rounds int64         // how often the topic of each word is drawn
	Pace   time.Duration // least time of a round
	Check  bool          // count all topics in each round, and compare
	// Round, if set, is called after each committed round.
	Round func(s *Sampler)
}

// Parameters of the prior: a document has few topics, and a topic few words.
const (
	alpha = 0.1
	beta  = 0.01
)

// Sampler draws topics for the words of documents. A topic is drawn in proportion to
// (words of the document in the topic + alpha) (occurrences of the word in the topic + beta) /
// (all words in the topic + beta vocabulary), without the word itself (Griffiths and Steyvers 2004).
type Sampler struct {
	Rounds  int64 // committed rounds
	Rebuilt int   // pieces that were lost, without those at the start
	Wrong   int   // with Options.Check, counts that were wrong

	options Options
	text    *Text
	totals  []int64             // by topic, the words in it, over all documents
	topics  *parts.Parts[uint8] // by chunk, the topics of its words
	counts  *parts.Parts[int32] // by block, for each of its words the occurrences in each topic
	chunks  []chunk             // by number
	blocks  [][]int32           // the words of each block
	place   []int32             // by word, its index in its block
	model   []int32             // the counts of all words, after the last round
}

// chunk is a range of documents.
type chunk struct {
	documents [][]int32
	words     int
	positions [][]position // by block, its words in these documents; nil before the first use
}

// position is a word of a chunk.
type position struct {
	document, word int32
	at             int32 // index in the chunk
}

// NewSampler returns a sampler that has drawn no topics yet.
func NewSampler(text *Text, o Options) *Sampler {
	s := &Sampler{
		options: o, text: text, totals: make([]int64, o.Topics), chunks: make([]chunk, o.Chunks),
		blocks: make([][]int32, o.Blocks), place: make([]int32, len(text.Vocabulary)),
	}
	// Frequent words have neighbouring numbers, so neighbours are in different blocks.
	for w := range text.Vocabulary {
		b := &s.blocks[w%o.Blocks]
		s.place[w] = int32(len(*b))
		*b = append(*b, int32(w))
	}
	for i, d := range text.Documents {
		c := &s.chunks[i*o.Chunks/len(text.Documents)]
		c.documents, c.words = append(c.documents, d), c.words+len(d)
	}
	var words, sizes []int
	for _, c := range s.chunks {
		words = append(words, c.words)
	}
	for _, b := range s.blocks {
		sizes = append(sizes, len(b)*o.Topics)
	}
	s.topics = parts.New[uint8](words, parts.Options{Copies: o.Copies})
	s.counts = parts.New[int32](sizes, parts.Options{Copies: o.Copies})
	return s
}

// Train draws topics for all rounds.
func (s *Sampler) Train(ctx context.Context, g *elastic.Group) error {
	state := elastic.Vectors(&s.Rounds, s.totals, s.topics.Tag(), s.counts.Tag())
	for t := range g.Steps(ctx, state, s.options.Rounds) {
		begun := time.Now()
		totals, err := s.settle(ctx, t)
		if err != nil || s.rotate(ctx, t, totals) != nil {
			continue
		}
		wait(ctx, s.options.Pace-time.Since(begun))
		if totals, err = s.finish(ctx, t); err != nil {
			continue // the round is tried again by those who are left
		}
		copy(s.totals, totals)
		s.topics.Commit()
		s.counts.Commit()
		s.Rounds++
		if s.options.Round != nil {
			s.options.Round(s)
		}
	}
	return g.Err()
}

// wait sleeps for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// settle places the pieces, and returns the totals of all topics. After a loss it draws the topics of
// lost documents, and counts all topics.
func (s *Sampler) settle(ctx context.Context, t *elastic.Turn) (totals []int64, err error) {
	documents, err := s.topics.Settle(ctx, t)
	if err != nil {
		return nil, err
	}
	blocks, err := s.counts.Settle(ctx, t)
	if err != nil || len(documents)+len(blocks) == 0 {
		return s.totals, err
	}
	for _, k := range documents {
		if s.topics.Holders(k)[0] != t.Rank {
			continue
		}
		r := rand.New(rand.NewPCG(uint64(s.Rounds)<<32|1, uint64(k)))
		for i, next := 0, s.topics.Next(k); i < len(next); i++ {
			next[i] = uint8(r.IntN(s.options.Topics))
		}
	}
	all, err := s.count(ctx, t)
	if err != nil {
		return nil, err
	}
	totals = make([]int64, s.options.Topics) // those of the common state change only in a commit
	for i, n := range all {
		totals[i%s.options.Topics] += int64(n)
	}
	for b := range s.counts.Own() {
		s.copyOf(all, b, s.counts.Next(b))
	}
	if s.Rounds > 0 {
		s.Rebuilt += len(documents) + len(blocks)
	}
	return totals, nil
}

// count counts the next topics of all documents of all peers: by word and topic.
func (s *Sampler) count(ctx context.Context, t *elastic.Turn) ([]int32, error) {
	all := make([]int32, len(s.text.Vocabulary)*s.options.Topics)
	for k := range s.topics.Own() {
		next, i := s.topics.Next(k), 0
		for _, d := range s.chunks[k].documents {
			for _, w := range d {
				all[int(w)*s.options.Topics+int(next[i])]++
				i++
			}
		}
	}
	return all, collective.AllReduce(ctx, t.Comm, all, all, collective.Sum[int32])
}

// copyOf copies the counts of a block out of those of all words.
func (s *Sampler) copyOf(all []int32, block int, into []int32) {
	for i, w := range s.blocks[block] {
		copy(into[i*s.options.Topics:(i+1)*s.options.Topics], all[int(w)*s.options.Topics:])
	}
}

// tagBlocks is the tag of the messages with blocks.
const tagBlocks = 1

// rotate draws the topics of all words once. The blocks that a rank owns are a group. In turn number i a
// rank has the group of the rank that is i further, and draws the words of these blocks; then it passes
// the group on to the rank before. totals are those of all topics before the round.
func (s *Sampler) rotate(ctx context.Context, t *elastic.Turn, totals []int64) error {
	n := t.Comm.Size()
	groups := make([][]int, n) // by rank, the blocks that it owns
	for b := range s.blocks {
		owner := s.counts.Holders(b)[0]
		groups[owner] = append(groups[owner], b)
	}
	d := s.newDrawing(totals)
	var group []int32 // the counts of the blocks of a group, one after the other
	for _, b := range groups[t.Rank] {
		group = append(group, s.counts.Next(b)...)
	}
	for i := range n {
		d.draw(groups[(t.Rank+i)%n], group)
		if n == 1 {
			break
		}
		next := make([]int32, s.size(groups[(t.Rank+i+1)%n]))
		handles := []*collective.Handle{
			collective.IRecv(ctx, t.Comm, (t.Rank+1)%n, tagBlocks, next),
			collective.ISend(ctx, t.Comm, (t.Rank+n-1)%n, tagBlocks, group),
		}
		if err := collective.WaitAll(ctx, handles...); err != nil {
			return err
		}
		group = next
	}
	for _, b := range groups[t.Rank] {
		group = group[copy(s.counts.Next(b), group):]
	}
	return nil
}

// size returns the number of counts of blocks.
func (s *Sampler) size(blocks []int) (n int) {
	for _, b := range blocks {
		n += len(s.blocks[b]) * s.options.Topics
	}
	return n
}

// finish stages the round, and returns the totals of all topics. In the last round, and with
// Options.Check in each one, all peers get the counts of all words.
func (s *Sampler) finish(ctx context.Context, t *elastic.Turn) ([]int64, error) {
	last := s.Rounds+1 == s.options.Rounds
	wrong := 0
	if last || s.options.Check {
		all, err := s.count(ctx, t)
		if err != nil {
			return nil, err
		}
		s.model, wrong = all, s.miscounts(all)
	}
	if err := s.topics.Replicate(ctx); err != nil {
		return nil, err
	}
	if err := s.counts.Replicate(ctx); err != nil {
		return nil, err
	}
	totals := make([]int64, s.options.Topics+1)
	for b := range s.counts.Own() {
		for i, n := range s.counts.Next(b) {
			totals[i%s.options.Topics] += int64(n)
		}
	}
	totals[s.options.Topics] = int64(wrong)
	err := collective.AllReduce(ctx, t.Comm, totals, totals, collective.Sum[int64])
	if err == nil {
		s.Wrong += int(totals[s.options.Topics])
	}
	return totals[:s.options.Topics], err
}

// miscounts returns how many counts of the blocks of this peer differ from those of all words.
func (s *Sampler) miscounts(all []int32) (wrong int) {
	for b := range s.counts.Own() {
		next := s.counts.Next(b)
		want := make([]int32, len(next))
		s.copyOf(all, b, want)
		for i := range want {
			if next[i] != want[i] {
				wrong++
			}
		}
	}
	return wrong
}

// drawing is a round at one peer.
type drawing struct {
	*Sampler
	totals    []float64         // by topic, as this peer sees it: with its own changes in this round
	documents map[int][][]int32 // by chunk and document, its words by topic
	weights   []float64
}

// newDrawing counts the topics of the documents of this peer.
func (s *Sampler) newDrawing(totals []int64) *drawing {
	d := &drawing{Sampler: s, totals: make([]float64, s.options.Topics), documents: make(map[int][][]int32), weights: make([]float64, s.options.Topics)}
	for k, n := range totals {
		d.totals[k] = float64(n)
	}
	for k := range s.topics.Own() {
		next := s.topics.Next(k)
		for _, words := range s.chunks[k].documents {
			counts := make([]int32, s.options.Topics)
			for _, topic := range next[:len(words)] {
				counts[topic]++
			}
			next = next[len(words):]
			d.documents[k] = append(d.documents[k], counts)
		}
	}
	return d
}

// draw draws the topics of the words of some blocks in the documents of this peer. counts has the counts
// of these blocks.
func (d *drawing) draw(blocks []int, counts []int32) {
	for _, b := range blocks {
		size := len(d.blocks[b]) * d.options.Topics
		for k := range d.topics.Own() {
			r := rand.New(rand.NewPCG(uint64(d.Rounds)<<32|uint64(b)<<1, uint64(k)))
			next := d.topics.Next(k)
			for _, p := range d.positions(k, b) {
				of := int(d.place[p.word]) * d.options.Topics
				next[p.at] = d.one(next[p.at], d.documents[k][p.document], counts[of:of+d.options.Topics], r.Float64())
			}
		}
		counts = counts[size:]
	}
}

// positions returns the words of a block in a chunk.
func (s *Sampler) positions(k, b int) []position {
	c := &s.chunks[k]
	if c.positions == nil {
		c.positions = make([][]position, len(s.blocks))
		at := int32(0)
		for i, words := range c.documents {
			for _, w := range words {
				block := &c.positions[int(w)%len(s.blocks)]
				*block = append(*block, position{int32(i), w, at})
				at++
			}
		}
	}
	return c.positions[b]
}

// one draws the topic of a word again. document and word are the counts of its document and of itself,
// and x is a random number below 1.
func (d *drawing) one(old uint8, document, word []int32, x float64) uint8 {
	document[old]--
	word[old]--
	d.totals[old]--
	sum, more := 0.0, beta*float64(len(d.text.Vocabulary))
	for k := range d.weights {
		sum += (float64(document[k]) + alpha) * (float64(word[k]) + beta) / (d.totals[k] + more)
		d.weights[k] = sum
	}
	topic := 0
	for topic < len(d.weights)-1 && d.weights[topic] <= x*sum {
		topic++
	}
	document[topic]++
	word[topic]++
	d.totals[topic]++
	return uint8(topic)
}

// Perplexity returns the perplexity of the documents that were held out: exp of the mean negative
// logarithm of a word's probability. The topics of a document follow from every second word of it, by
// expectation maximisation, and the others count (document completion: Wallach and others 2009). Call it
// after the last round. It is 0 at a peer that missed the commit of that round.
func (s *Sampler) Perplexity() float64 {
	if s.model == nil {
		return 0
	}
	k, n, logs := s.options.Topics, 0, 0.0
	totals := make([]float64, k)
	for i, c := range s.model {
		totals[i%k] += float64(c)
	}
	phi := func(w int32, topic int) float64 {
		return (float64(s.model[int(w)*k+topic]) + beta) / (totals[topic] + beta*float64(len(s.text.Vocabulary)))
	}
	for _, d := range s.text.Held {
		theta := mixture(d, k, phi)
		for i := 1; i < len(d); i += 2 {
			p := 0.0
			for topic := range theta {
				p += theta[topic] * phi(d[i], topic)
			}
			logs, n = logs+math.Log(p), n+1
		}
	}
	return math.Exp(-logs / float64(n))
}

// mixture returns the probabilities of k topics in a document, from every second word. phi is the
// probability of a word in a topic.
func mixture(document []int32, k int, phi func(w int32, topic int) float64) []float64 {
	theta := slices.Repeat([]float64{1 / float64(k)}, k)
	for range 30 {
		next := slices.Repeat([]float64{alpha}, k)
		for i := 0; i < len(document); i += 2 {
			sum := 0.0
			for topic := range theta {
				sum += theta[topic] * phi(document[i], topic)
			}
			for topic := range theta {
				next[topic] += theta[topic] * phi(document[i], topic) / sum
			}
		}
		for topic := range next {
			theta[topic] = next[topic] / (float64((len(document)+1)/2) + alpha*float64(k))
		}
	}
	return theta
}

// Words returns the most frequent words of a topic. Call it after the last round.
func (s *Sampler) Words(topic, n int) string {
	if s.model == nil {
		return ""
	}
	words := make([]int, len(s.text.Vocabulary))
	for w := range words {
		words[w] = w
	}
	slices.SortStableFunc(words, func(a, b int) int { return int(s.model[b*s.options.Topics+topic] - s.model[a*s.options.Topics+topic]) })
	var names []string
	for _, w := range words[:min(n, len(words))] {
		names = append(names, s.text.Vocabulary[w])
	}
	return fmt.Sprintf("topic %d: %s", topic, strings.Join(names, " "))
}

// String describes the result.
func (s *Sampler) String() string {
	documents, blocks := s.topics.Stats(), s.counts.Stats()
	text := fmt.Sprintf("rounds %d, perplexity %.1f, pieces lost %d; this peer owns %d of %d chunks of documents and %d of %d blocks of words, moved %d elements",
		s.Rounds, s.Perplexity(), s.Rebuilt, documents.Owned, s.topics.Len(), blocks.Owned, s.counts.Len(), documents.Moved+blocks.Moved)
	if s.options.Check {
		text += fmt.Sprintf("; %d counts were wrong", s.Wrong)
	}
	return text
}
