// Topics finds the topics of a text by latent Dirichlet allocation (LDA, Blei and others 2003), with
// collapsed Gibbs sampling. It is an example of package elastic/parts for a model that no peer holds as a
// whole: blocks of the vocabulary, with the topic counts of their words, go around the peers.
//
//	topics
//	elrun -n 4 topics --data data/moby-dick.txt
//
// The topics of the words of a document are in a piece at one peer, and so are the counts of a block of
// words. In a round each block visits each peer, which draws new topics for the words of its documents
// that are in the block. At no time do two peers change one block. This is the model scheduling of STRADS
// (Lee and others 2014), which Litz (Qiao and others 2018) made elastic. The counts follow from the
// topics: if pieces are lost, the topics of lost documents are drawn anew, and all counts are made anew.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/launch"
)

func main() {
	o := Options{}
	data := flag.String("data", "", "read the text of `FILE`; without it documents are generated")
	flag.IntVar(&o.Topics, "topics", 20, "number of topics, up to 256")
	flag.IntVar(&o.Blocks, "blocks", 32, "blocks of the vocabulary: a few times the number of peers")
	flag.IntVar(&o.Chunks, "chunks", 64, "pieces with documents")
	flag.IntVar(&o.Copies, "copies", 0, "copies of each piece at other peers")
	flag.Int64Var(&o.Rounds, "rounds", 100, "draw the topic of each word `N` times")
	flag.DurationVar(&o.Pace, "pace", 0, "`time` that a round takes at least")
	flag.BoolVar(&o.Check, "check", false, "count all topics in each round, and compare")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o, *data)
	stop()
	switch {
	case errors.Is(err, elastic.ErrLeft), errors.Is(err, elastic.ErrFinished):
		fmt.Fprintln(os.Stderr, "topics:", err) // no failure: elrun does not count the status
	case errors.Is(err, elastic.ErrQuorum):
		fmt.Fprintln(os.Stderr, "topics:", err)
		os.Exit(launch.StatusQuorum)
	case err != nil:
		fmt.Fprintln(os.Stderr, "topics:", err)
		os.Exit(1)
	}
}

// run joins the job, samples, reports the result and leaves.
func run(ctx context.Context, o Options, data string) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	text := Generate(1000, 2000, 20)
	if data != "" {
		if text, err = ReadText(data); err != nil {
			return err
		}
	}
	g, err := launch.Init(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	s := NewSampler(text, o)
	if err := s.Train(ctx, g); err != nil {
		return err
	}
	if g.Self().Index == 0 {
		for topic := range o.Topics {
			fmt.Println(s.Words(topic, 8))
		}
	}
	fmt.Println(s)
	if s.Perplexity() == 0 {
		return nil // another peer reports
	}
	return g.Report(elastic.Result{Loss: new(s.Perplexity())})
}

// check returns an error for options that cannot be used.
func (o Options) check() error {
	switch {
	case o.Topics < 1 || o.Topics > 256:
		return errors.New("--topics: want 1 to 256")
	case o.Blocks < 1 || o.Chunks < 1 || o.Blocks > 1<<16 || o.Chunks > 1<<16:
		return errors.New("--blocks and --chunks: want 1 to 65536")
	case o.Copies < 0 || o.Rounds < 0:
		return errors.New("--copies and --rounds: want 0 or more")
	}
	return nil
}
