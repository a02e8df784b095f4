package collective_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/elrun/elrun/collective"
	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/testing/cluster"
	"pgregory.net/rapid"
)

// halves is a coding in multiples of one half, from -64 to 63.5, in one byte each.
type halves struct{ name string }

func (h halves) Name() string { return "halves" + h.name }

func (halves) Sparse() bool { return false }

func (halves) Size(n int) int { return n }

func (halves) Encode(code []byte, v []float32) {
	for i, x := range v {
		q := int8(max(-128, min(127, math.Round(float64(2*x)))))
		code[i], v[i] = byte(q), x-float32(q)/2
	}
}

func (halves) Add(dst []float32, code []byte) error {
	for i, q := range code {
		dst[i] += float32(int8(q)) / 2
	}
	return nil
}

// first is a sparse coding of one element: the first non-zero element and its index.
type first struct{}

var errCode = errors.New("no such place")

func (first) Name() string { return "first" }

func (first) Sparse() bool { return true }

func (first) Size(int) int { return 8 }

func (first) Encode(code []byte, v []float32) {
	at := max(0, slices.IndexFunc(v, func(x float32) bool { return x != 0 }))
	binary.LittleEndian.PutUint32(code, uint32(at))
	binary.LittleEndian.PutUint32(code[4:], math.Float32bits(v[at]))
	v[at] = 0
}

func (first) Add(dst []float32, code []byte) error {
	at := binary.LittleEndian.Uint32(code)
	if int(at) >= len(dst) {
		return errCode
	}
	dst[at] += math.Float32frombits(binary.LittleEndian.Uint32(code[4:]))
	return nil
}

// coded returns the vector of a rank: multiples of a quarter, so that sums are exact, and the
// coding halves has errors.
func coded(rank, n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32((rank*13+i*7)%41-20) / 4
	}
	return v
}

// reduceCoded runs the call at all ranks and returns the results and the remaining errors
// of all ranks.
func reduceCoded(t testing.TB, ranks, n int, coding collective.Coding, change func(c *collective.Comm) *collective.Comm) (sums, rests [][]float32) {
	sums, rests = make([][]float32, ranks), make([][]float32, ranks)
	cluster.Run(t, ranks, func(ctx context.Context, c *collective.Comm) error {
		dst, v := make([]float32, n), coded(c.Rank(), n)
		sums[c.Rank()], rests[c.Rank()] = dst, v
		if change != nil {
			c = change(c)
		}
		h := collective.IAllReduceCoded(ctx, c, dst, v, coding)
		return h.Wait(ctx)
	})
	return sums, rests
}

// twinOfHalves is the reference for reduceCoded with the coding halves: it computes the results of
// all ranks. Each rank except the owner of the chunk encodes an element, and the owner encodes the
// sum.
func twinOfHalves(ranks, n int) (sum []float32, rests [][]float32) {
	round := func(x float32) float32 { return float32(math.Round(float64(2*x))) / 2 }
	sum, rests = make([]float32, n), make([][]float32, ranks)
	for rank := range rests {
		rests[rank] = coded(rank, n)
	}
	for owner := range ranks {
		begin, end := collective.Chunk(n, ranks, owner)
		for i := begin; i < end; i++ {
			total := rests[owner][i]
			for rank := range ranks {
				if rank != owner {
					total += round(rests[rank][i])
					rests[rank][i] -= round(rests[rank][i])
				}
			}
			sum[i] = round(total)
			rests[owner][i] = total - sum[i]
		}
	}
	return sum, rests
}

func TestCodedIsItsTwin(t *testing.T) {
	for _, ranks := range []int{2, 3, 4, 7} {
		for _, n := range []int{0, 1, ranks - 1, ranks, ranks + 1, 1000} {
			sum, rests := twinOfHalves(ranks, n)
			sums, left := reduceCoded(t, ranks, n, halves{}, nil)
			for rank := range ranks {
				if !slices.Equal(sums[rank], sum) || !slices.Equal(left[rank], rests[rank]) {
					t.Fatalf("%d elements at rank %d of %d: sum %v, want %v; rest %v, want %v",
						n, rank, ranks, sums[rank], sum, left[rank], rests[rank])
				}
			}
		}
	}
}

// A single rank loses nothing, whatever the coding.
func TestCodedAlone(t *testing.T) {
	sums, rests := reduceCoded(t, 1, 9, first{}, nil)
	if !slices.Equal(sums[0], coded(0, 9)) || !slices.Equal(rests[0], make([]float32, 9)) {
		t.Errorf("sum %v, rest %v", sums[0], rests[0])
	}
}

// Error feedback conserves the sum, with either kind of coding and any order of the ring:
// the results and the remaining errors add up to the original vectors.
func TestCodedConserves(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ranks, n := rapid.IntRange(1, 6).Draw(rt, "ranks"), rapid.IntRange(1, 50).Draw(rt, "n")
		coding := rapid.SampledFrom([]collective.Coding{halves{}, first{}}).Draw(rt, "coding")
		order := rapid.Permutation(slices.Collect(upTo(ranks))).Draw(rt, "order")
		sums, rests := reduceCoded(t, ranks, n, coding, func(c *collective.Comm) *collective.Comm {
			return c.With(collective.CallOptions{Order: order})
		})
		for i := range n {
			was, is := float32(0), sums[0][i]
			for rank := range ranks {
				was += coded(rank, n)[i]
				is += rests[rank][i]
				if sums[rank][i] != sums[0][i] {
					rt.Fatalf("element %d is %v at rank %d, %v at rank 0", i, sums[rank][i], rank, sums[0][i])
				}
			}
			if was != is {
				rt.Fatalf("element %d: %v with what is left, it was %v", i, is, was)
			}
		}
	})
}

func upTo(n int) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for i := 0; i < n && yield(i); i++ {
		}
	}
}

// Several coded calls may be in progress at once, also beside other calls.
func TestCodedInProgress(t *testing.T) {
	const ranks, n = 3, 100
	sum, _ := twinOfHalves(ranks, n)
	cluster.Run(t, ranks, func(ctx context.Context, c *collective.Comm) error {
		var handles []*collective.Handle
		var results [][]float32
		for range 8 {
			dst := make([]float32, n)
			results = append(results, dst)
			handles = append(handles, collective.IAllReduceCoded(ctx, c, dst, coded(c.Rank(), n), halves{}), collective.IBarrier(ctx, c))
		}
		for i, h := range handles {
			if err := h.Wait(ctx); err != nil {
				return err
			}
			if !slices.Equal(results[i/2], sum) {
				return fmt.Errorf("call %d: %v, want %v", i/2, results[i/2], sum)
			}
		}
		return nil
	})
}

// Different codings or lengths at two ranks are a mismatch.
func TestCodedMismatch(t *testing.T) {
	for what, call := range map[string]func(rank int) (int, halves){
		"codings": func(rank int) (int, halves) { return 5, halves{fmt.Sprint(rank)} },
		"lengths": func(rank int) (int, halves) { return 5 + rank, halves{} },
	} {
		synctest.Test(t, func(t *testing.T) {
			errs := cluster.Run(t, 3, func(ctx context.Context, c *collective.Comm) error {
				n, coding := call(c.Rank())
				return collective.AllReduceCoded(ctx, c, make([]float32, n), make([]float32, n), coding)
			}, cluster.MayFail())
			for rank, err := range errs {
				var mismatch *collective.MismatchError
				if !errors.As(err, &mismatch) {
					t.Errorf("%s: rank %d: %v", what, rank, err)
				}
			}
		})
	}
	err := errors.Join(cluster.Run(t, 1, func(ctx context.Context, c *collective.Comm) error {
		return collective.AllReduceCoded(ctx, c, make([]float32, 3), make([]float32, 4), halves{})
	}, cluster.MayFail())...)
	if !errors.Is(err, collective.ErrArgument) {
		t.Errorf("dst too short: %v", err)
	}
}

// spoiled writes codes that do not decode.
type spoiled struct{ first }

func (spoiled) Encode(code []byte, v []float32) { code[0] = byte(len(v)) }

func TestCodeThatDoesNotDecode(t *testing.T) {
	errs := cluster.Run(t, 2, func(ctx context.Context, c *collective.Comm) error {
		return collective.AllReduceCoded(ctx, c, make([]float32, 3), make([]float32, 3), spoiled{})
	}, cluster.MayFail())
	if err := errors.Join(errs...); !errors.Is(err, errCode) || !errors.Is(err, collective.ErrRevoked) {
		t.Errorf("error %v", err)
	}
}

// sendHook counts the bytes that a transport sends.
type sendHook struct {
	transport.Transport
	sent *atomic.Int64
}

func (s sendHook) Send(ctx context.Context, to int, e transport.Envelope, buf []byte) error {
	s.sent.Add(int64(len(buf)))
	return s.Transport.Send(ctx, to, e, buf)
}

// CodedBytes returns the number of bytes that the calls send over the transport.
func TestCodedBytes(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 4} {
		for _, coding := range []collective.Coding{halves{}, first{}} {
			const n = 12000
			var total, told, plain, uncoded atomic.Int64
			run := func(total *atomic.Int64, call func(ctx context.Context, c *collective.Comm) error) {
				var ts []transport.Transport
				for _, e := range messages(ranks) {
					ts = append(ts, sendHook{e, total})
				}
				cluster.Run(t, len(ts), call, cluster.Over(ts))
			}
			run(&total, func(ctx context.Context, c *collective.Comm) error {
				sent, raw := c.CodedBytes(n, coding)
				told.Add(sent)
				uncoded.Add(raw)
				return collective.AllReduceCoded(ctx, c, make([]float32, n), coded(c.Rank(), n), coding)
			})
			run(&plain, func(ctx context.Context, c *collective.Comm) error {
				v := coded(c.Rank(), n)
				return collective.AllReduce(ctx, c.With(collective.CallOptions{Algorithm: collective.Ring}), v, v, collective.Sum[float32])
			})
			if total.Load() != told.Load() || plain.Load() != uncoded.Load() {
				t.Errorf("%s, %d ranks: sent %d, told %d; without coding %d, told %d", coding.Name(), ranks,
					total.Load(), told.Load(), plain.Load(), uncoded.Load())
			}
		}
	}
}

// Shared memory between ranks does not change the sums.
func TestCodedOverSharedMemory(t *testing.T) {
	const n = 5000
	for _, perHost := range [][]int{{3}, {2, 2}, {3, 1}} {
		ts := sharing(t, perHost...)
		sum, rests := twinOfHalves(len(ts), n)
		cluster.Run(t, len(ts), func(ctx context.Context, c *collective.Comm) error {
			dst, v := make([]float32, n), coded(c.Rank(), n)
			h := collective.IAllReduceCoded(ctx, c, dst, v, halves{})
			plain := make([]int64, 300) // uses the shared memory while the coded call is in progress
			if err := errors.Join(collective.AllReduce(ctx, c, plain, plain, collective.Sum[int64]), h.Wait(ctx)); err != nil {
				return err
			}
			if !slices.Equal(dst, sum) || !slices.Equal(v, rests[c.Rank()]) {
				return fmt.Errorf("hosts of %v ranks: another sum than of messages", perHost)
			}
			return nil
		}, cluster.Over(ts), cluster.WithOptions(collective.Options{Segment: 1 << 10}))
	}
}
