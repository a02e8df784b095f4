package collective

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/elrun/elrun/collective/transport"
	"github.com/elrun/elrun/internal/shm"
)

// drawCall draws any call, including calls that no rank could make.
func drawCall(t *rapid.T) transport.Call {
	c, err := transport.DecodeCall(rapid.SliceOfN(rapid.Byte(), transport.CallSize, transport.CallSize).Draw(t, "call"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// envelopeOf is the inverse of pack.
func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := transport.Envelope{Comm: rapid.Uint64().Draw(t, "comm"), Seq: rapid.Uint32().Draw(t, "seq"), Call: drawCall(t)}
		var h shm.Header
		pack(&want, &h)
		if got := envelopeOf(h); got != want {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}
