package transport_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/dtype"
	"github.com/elrun/elrun/transport/mem"
)

// A message goes to the Recv with the same sender, communicator and number. If the receive
// is posted first, the bytes are not copied.
func ExampleTransport() {
	ctx := context.Background()
	ts := mem.New(2)
	e := transport.Envelope{Seq: 1, Call: transport.Call{Kind: transport.KindBroadcast, Root: 0, Count: 5, Type: dtype.Uint8}}
	got := make([]byte, 5)
	posted := ts[1].Post(0, e, got)
	if err := ts[0].Send(ctx, 1, e, []byte("hello")); err != nil {
		fmt.Println(err)
	}
	if err := posted.Wait(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Printf("%s\n", got)
	for _, t := range ts {
		_ = t.Close() // in memory it has nothing to report
	}
	// Output: hello
}

// The receiver compares the sender's description of the call with its own, and revokes if
// they differ.
func ExampleMismatchError() {
	ctx := context.Background()
	ts := mem.New(2)
	barrier := transport.Envelope{Seq: 1, Call: transport.Call{Kind: transport.KindBarrier, Root: -1}}
	scan := transport.Envelope{Seq: 1, Call: transport.Call{Kind: transport.KindScan, Root: -1}}
	posted := ts[1].Post(0, scan, nil)
	_ = ts[0].Send(ctx, 1, barrier, nil) // the receiver reports the mismatch
	err := posted.Wait(ctx)
	fmt.Println(errors.Is(err, transport.ErrMismatch), errors.Is(err, transport.ErrRevoked))
	for _, t := range ts {
		_ = t.Close()
	}
	// Output: true true
}

// The cause of a revocation is sent to the other ranks. An error that names ranks is sent
// unchanged. Any other error is sent as the text of an AbortError.
func ExampleEncodeCause() {
	for _, cause := range []error{
		&transport.PeerError{Rank: 3, Peer: "12D3Koo", Cause: "connection reset"},
		fmt.Errorf("save: %w", errors.New("the disk is full")),
	} {
		b := transport.EncodeCause(1, cause)
		fmt.Println(len(b) <= transport.MaxSignal, transport.DecodeCause(1, b))
	}
	// Output:
	// true peer lost: rank 3 (12D3Koo): connection reset
	// true revoked by rank 1: save: the disk is full
}

// The rank that revokes and the other ranks have the same cause.
func ExampleCauseOf() {
	lost := &transport.PeerError{Rank: 2, Cause: "silent"}
	fmt.Println(transport.CauseOf(0, fmt.Errorf("send: %w", lost)))
	fmt.Println(transport.CauseOf(0, context.Canceled))
	// Output:
	// peer lost: rank 2: silent
	// revoked by rank 0: context canceled
}

// An encoded call has CallSize bytes. Any bytes decode; a call that no rank can make
// differs from every real call.
func ExampleDecodeCall() {
	sent := transport.Call{Kind: transport.KindAllReduce, Type: dtype.F32, Algorithm: transport.Ring, Root: -1, Count: 1000}
	copy(sent.Op[:], "sum")
	b := sent.Append(nil)
	got, err := transport.DecodeCall(b)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(b) == transport.CallSize, got == sent, got)
	// Output: true true allreduce float32[1000] sum by ring
}
