package inpeer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elrun/elrun/elastic"
)

// The offset of a clock is found by the exchange with the shortest round trip, and lies within its error.
func TestCompareClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const offset = 1234 * time.Millisecond
		delays := [][2]time.Duration{{50, 10}, {7, 1}, {3, 2}, {90, 90}, {20, 20}, {8, 8}, {9, 9}, {5, 5}} // there and back, in ms
		n := 0
		c, ok := compareClock(t.Context(), "them", func(_ context.Context, of elastic.ID, request []byte) (io.ReadCloser, error) {
			if of != "them" || string(request) != "c" {
				t.Errorf("asked %s: %q", of, request)
			}
			<-time.After(delays[n][0] * time.Millisecond)
			now := time.Now().Add(offset)
			<-time.After(delays[n][1] * time.Millisecond)
			n++
			return io.NopCloser(bytes.NewReader(binary.LittleEndian.AppendUint64(nil, uint64(now.UnixNano())))), nil
		})
		if !ok || n != clockRounds || c.ErrorMS != 2.5 || math.Abs(c.OffsetMS-1234) > c.ErrorMS {
			t.Errorf("got %+v, %v after %d exchanges", c, ok, n)
		}
		if c, ok := compareClock(t.Context(), "them", func(context.Context, elastic.ID, []byte) (io.ReadCloser, error) { return nil, errors.New("gone") }); ok {
			t.Errorf("without an answer: %+v", c)
		}
	})
}

// One member of each other host is asked.
func TestOtherHosts(t *testing.T) {
	var members []elastic.Member
	for _, m := range []struct{ id, host string }{{"a", "1"}, {"b", "1"}, {"c", "2"}, {"d", "3"}, {"e", "2"}} {
		members = append(members, elastic.Member{ID: elastic.ID(m.id), Host: m.host, Machine: m.host})
	}
	var ids []elastic.ID
	for _, m := range otherHosts(members, "b") {
		ids = append(ids, m.ID)
	}
	if !slices.Equal(ids, []elastic.ID{"c", "d"}) {
		t.Errorf("got %v", ids)
	}
}
