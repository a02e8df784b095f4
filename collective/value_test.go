package collective_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/testing/cluster"
)

// record is a value with parts of many kinds.
type record struct {
	Name   string
	Counts map[string]int
	Next   *record
	Any    any
}

func recordOf(rank int) record {
	return record{Name: strings.Repeat("x", 1000*rank), Counts: map[string]int{"rank": rank}, Next: &record{Name: "next"}, Any: rank}
}

// Values travel from and to each root, over all transports.
func TestValues(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 3} {
		for where, connect := range everywhere(t, n) {
			errs := cluster.Run(t, n, func(ctx context.Context, c *collective.Comm) error {
				for root := range n {
					if err := valuesAt(ctx, c, root); err != nil {
						return fmt.Errorf("root %d: %w", root, err)
					}
				}
				return nil
			}, cluster.Over(connect()), cluster.MayFail())
			if err := errors.Join(errs...); err != nil {
				t.Errorf("%d ranks, %s: %v", n, where, err)
			}
		}
	}
}

// valuesAt broadcasts a value of root and gathers one of each rank at root.
func valuesAt(ctx context.Context, c *collective.Comm, root int) error {
	v := record{Name: "before", Counts: map[string]int{"before": 1}}
	if c.Rank() == root {
		v = recordOf(root + 1)
	}
	if err := collective.BroadcastValue(ctx, c, &v, root); err != nil {
		return err
	}
	if want := recordOf(root + 1); !reflect.DeepEqual(v, want) {
		return fmt.Errorf("got %+v, want %+v", v, want)
	}
	all, err := collective.GatherValues(ctx, c, recordOf(c.Rank()), root)
	if err != nil || (all == nil) != (c.Rank() != root) {
		return fmt.Errorf("gathered %v: %w", all, orMissing(err))
	}
	for rank, got := range all {
		if want := recordOf(rank); !reflect.DeepEqual(got, want) {
			return fmt.Errorf("gathered %+v of rank %d, want %+v", got, rank, want)
		}
	}
	return nil
}

// Nil pointers are values.
func TestNilValues(t *testing.T) {
	cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
		var own *int
		if c.Rank() == 1 {
			own = new(7)
		}
		all, err := collective.GatherValues(ctx, c, own, 0)
		if err == nil && c.Rank() == 0 && (all[0] != nil || all[1] == nil || *all[1] != 7 || all[2] != nil) {
			err = fmt.Errorf("gathered %v", all)
		}
		return err
	})
}

// Ranks that pass values of different types, or a value and a vector, find a mismatch.
func TestMismatchOfValues(t *testing.T) {
	others := map[string]func(ctx context.Context, c *collective.Comm) error{
		"type": func(ctx context.Context, c *collective.Comm) error {
			return collective.BroadcastValue(ctx, c, new(struct{ Name string }), 0)
		},
		"vector": func(ctx context.Context, c *collective.Comm) error {
			return collective.Broadcast(ctx, c, make([]int64, 1), 0)
		},
		"call": func(ctx context.Context, c *collective.Comm) error {
			_, err := collective.GatherValues(ctx, c, recordOf(1), 0)
			return err
		},
	}
	for name, other := range others {
		synctest.Test(t, func(t *testing.T) {
			errs := cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
				if c.Rank() == 1 {
					return other(ctx, c)
				}
				v := recordOf(1)
				return collective.BroadcastValue(ctx, c, &v, 0)
			}, cluster.MayFail())
			for rank, err := range errs {
				if !errors.Is(err, collective.ErrMismatch) {
					t.Errorf("%s: rank %d: %v", name, rank, err)
				}
			}
		})
	}
}

// A value that is too long, or that gob cannot encode, fails at all ranks with the reason.
func TestValueRefused(t *testing.T) {
	type hidden struct{ secret int }
	refused := map[string]func(ctx context.Context, c *collective.Comm) error{
		"want at most 67108864": func(ctx context.Context, c *collective.Comm) error {
			v := make([]byte, 1)
			if c.Rank() == 0 {
				v = make([]byte, collective.MaxValue)
			}
			return collective.BroadcastValue(ctx, c, &v, 0)
		},
		"hidden.secret is not exported": func(ctx context.Context, c *collective.Comm) error {
			return collective.BroadcastValue(ctx, c, &hidden{c.Rank()}, 0)
		},
		"type not registered": func(ctx context.Context, c *collective.Comm) error {
			var v any = 1
			if c.Rank() == 2 {
				v = struct{ Unknown int }{1}
			}
			_, err := collective.GatherValues(ctx, c, v, 0)
			return err
		},
	}
	for text, call := range refused {
		synctest.Test(t, func(t *testing.T) {
			errs := cluster.Run(t, 3, call, cluster.MayFail())
			for rank, err := range errs {
				if !errors.Is(err, collective.ErrRevoked) || !errors.Is(err, collective.ErrMistake) || !strings.Contains(err.Error(), text) {
					t.Errorf("%s: rank %d: %v", text, rank, err)
				}
			}
		})
	}
}
