package transport

import (
	"errors"
	"testing"
)

func TestErrorsIs(t *testing.T) {
	tests := []struct {
		err  error
		is   []error
		isnt []error
	}{
		{&MismatchError{}, []error{ErrMismatch, ErrMistake, ErrRevoked}, []error{ErrPeer, ErrClosed}},
		{&PeerError{}, []error{ErrPeer, ErrRevoked}, []error{ErrMismatch, ErrMistake, ErrClosed}},
		{&AbortError{}, []error{ErrRevoked}, []error{ErrMismatch, ErrMistake, ErrPeer, ErrClosed}},
		{&AbortError{Mistake: true}, []error{ErrRevoked, ErrMistake}, []error{ErrMismatch, ErrPeer, ErrClosed}},
	}
	for _, test := range tests {
		for _, target := range test.is {
			if !errors.Is(test.err, target) {
				t.Errorf("%T is not %v", test.err, target)
			}
		}
		for _, target := range test.isnt {
			if errors.Is(test.err, target) {
				t.Errorf("%T is %v", test.err, target)
			}
		}
	}
}

// The texts name the facts that a reader needs: ranks, peers, calls.
func TestErrorTexts(t *testing.T) {
	barrier := Call{Kind: KindBarrier, Root: -1}
	scan := Call{Kind: KindScan, Root: -1}
	tests := []struct {
		err  error
		want string
	}{
		{&MismatchError{RankA: 1, A: barrier, RankB: 2, B: scan},
			"mismatched calls: rank 1 called barrier, rank 2 called scan"},
		{&MismatchError{RankA: 1, A: barrier, RankB: 2, B: barrier, Detail: "8 bytes"},
			"mismatched calls: rank 1 called barrier, rank 2 called barrier (8 bytes)"},
		{&PeerError{Rank: 3, Cause: "reset"}, "peer lost: rank 3: reset"},
		{&PeerError{Rank: 3, Peer: "Qm", Cause: "reset"}, "peer lost: rank 3 (Qm): reset"},
		{&AbortError{Rank: 4, Cause: "context canceled"}, "revoked by rank 4: context canceled"},
	}
	for _, test := range tests {
		if got := test.err.Error(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}
