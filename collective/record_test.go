package collective_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/flight"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/transport/mem"
)

// recorded runs f at the ranks of some transports with a record, and returns the record of each rank.
func recorded[T transport.Transport](t *testing.T, all []T, f func(ctx context.Context, c *collective.Comm) error) []flight.Record {
	t.Helper()
	n := len(all)
	rings := make([]*flight.Ring, n)
	var ranks sync.WaitGroup
	for rank, over := range all {
		rings[rank] = flight.New(time.Now())
		c, err := collective.New(over, rank, n, collective.Options{Record: rings[rank].Session(1, rank, make([]string, n)), OnStall: func(collective.Stall) {}})
		if err != nil {
			t.Fatal(err)
		}
		ranks.Go(func() {
			defer c.Close()
			if err := f(t.Context(), c); err != nil {
				c.Revoke(err)
			}
		})
	}
	ranks.Wait()
	var out []flight.Record
	for _, ring := range rings {
		out = append(out, ring.Record(time.Now()))
	}
	return out
}

// line describes a call of a record for comparisons.
func line(c flight.Call) string {
	s := fmt.Sprintf("%d %d %s %d %q", c.Number, c.Seq, c.Kind, c.Bytes, c.For)
	if c.Point != nil {
		s += fmt.Sprint(" with ", c.Point.Peer, " ", c.Point.Sends)
	}
	if c.Wait != nil {
		s += fmt.Sprintf(" for %d %s", c.Wait.For, c.Wait.Phase)
	}
	if c.Background {
		s += " background"
	}
	if c.Open {
		s += " open"
	}
	return s
}

// A record has the calls with their numbers, purposes, lengths and ranks.
func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		records := recorded(t, mem.New(3), func(ctx context.Context, c *collective.Comm) error {
			v := make([]float32, 10)
			half, err := collective.Split(ctx, c, c.Rank()/2, 0)
			if err != nil {
				return err
			}
			h := collective.IAllReduce(ctx, c.With(collective.CallOptions{For: "bucket 1"}), v, v, collective.Sum[float32])
			if c.Rank() == 1 {
				<-time.After(3 * time.Second)
			}
			err = errors.Join(h.Wait(ctx), collective.Barrier(ctx, half), collective.Barrier(ctx, c))
			if c.Rank() == 0 {
				return errors.Join(err, collective.Send(ctx, c, 2, 5, v))
			} else if c.Rank() == 2 {
				return errors.Join(err, collective.Recv(ctx, c, 0, 5, v))
			}
			return err
		})
		for rank, want := range [][]string{
			{`1 1 split 0 ""`, `2 2 allreduce 40 "bucket 1" background`, `3 1 barrier 0 ""`, `4 3 barrier 0 ""`, `5 5 send/recv 40 "" with 2 true`},
			{`1 1 split 0 ""`, `2 2 allreduce 40 "bucket 1" background`, `3 1 barrier 0 ""`, `4 3 barrier 0 ""`},
			{`1 1 split 0 ""`, `2 2 allreduce 40 "bucket 1" background`, `3 1 barrier 0 ""`, `4 3 barrier 0 ""`, `5 5 send/recv 40 "" with 0 false`},
		} {
			var got []string
			for _, c := range records[rank].Calls {
				c.Wait = nil
				got = append(got, line(c))
			}
			if strings.Join(got, "\n") != strings.Join(want, "\n") {
				t.Errorf("rank %d:\n%s\nwant\n%s", rank, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			groups := records[rank].Sessions[0].Groups
			if len(groups) != 1 || len(groups[0].Ranks) != []int{2, 2, 1}[rank] || groups[0].Comm != records[rank].Calls[2].Comm {
				t.Errorf("rank %d: communicators %+v", rank, groups)
			}
		}
	})
}

// A record says for whom a call in progress waits, and why a call has failed.
func TestRecordWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mine := flight.New(time.Now())
		over := mem.New(2)
		waits, err := collective.New(over[0], 0, 2, collective.Options{Record: mine.Session(1, 0, make([]string, 2)), OnStall: func(collective.Stall) {}})
		if err != nil {
			t.Fatal(err)
		}
		absent, err := collective.New(over[1], 1, 2, collective.Options{})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- collective.Barrier(t.Context(), waits) }()
		<-time.After(5 * time.Second)
		c := mine.Record(time.Now()).Calls[0]
		if !c.Open || c.MS < 4900 || c.Wait == nil || c.Wait.For != 1 || c.Wait.QuietMS < 4000 || c.Wait.Phase != collective.PhaseAbsent || len(c.Wait.Culprits) != 1 || c.Wait.Culprits[0] != 1 {
			t.Errorf("got %+v, waiting %+v", c, c.Wait)
		}
		absent.Revoke(errors.New("no space left"))
		<-done
		c = mine.Record(time.Now()).Calls[0]
		if c.Open || c.Failure != flight.FailureAbort || len(c.Blames) != 1 || c.Blames[0] != 1 || !strings.Contains(c.Error, "no space left") {
			t.Errorf("got %+v", c)
		}
		if err := errors.Join(waits.Close(), absent.Close()); err != nil {
			t.Error(err)
		}
	})
}

// The calls by shared memory are in the record, too: blocking ones, which begin untracked, and queued ones.
func TestRecordShared(t *testing.T) {
	records := recorded(t, sharing(t, 2), func(ctx context.Context, c *collective.Comm) error {
		v := []float32{1}
		h := collective.IAllReduce(ctx, c, v, v, collective.Sum[float32])
		return errors.Join(h.Wait(ctx), collective.AllReduce(ctx, c, v, v, collective.Sum[float32]))
	})
	for rank, r := range records {
		for i, c := range r.Calls {
			if want := []string{`1 1 allreduce 4 "" background`, `2 2 allreduce 4 ""`}[i]; line(c) != want || c.Error != "" {
				t.Errorf("rank %d: %s, want %s", rank, line(c), want)
			}
		}
	}
}

// BenchmarkCallRecorded is BenchmarkCallOfOne with a record.
func BenchmarkCallRecorded(b *testing.B) {
	c, err := collective.New(mem.New(1)[0], 0, 1, collective.Options{Record: flight.New(time.Now()).Session(1, 0, []string{"a"})})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	v := []float32{1}
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		if err := collective.AllReduce(ctx, c, v, v, collective.Sum[float32]); err != nil {
			b.Fatal(err)
		}
	}
}
