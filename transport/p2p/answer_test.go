package p2p

import (
	"errors"
	"testing"

	"github.com/elrun/elrun/transport/ticket"
)

// Whoever does not hold the key is not believed that a newcomer is in, be its proof made up,
// the newcomer's own, or that of another pair.
func TestAnswerOfImpostor(t *testing.T) {
	p, wrong := proofOf(1), proofOf(2)
	claim := p.Claim("new", "old")
	for name, made := range map[string]struct {
		proof ticket.MAC
		want  error
	}{
		"right":            {p.Member("new", "old"), nil},
		"nothing":          {ticket.MAC{}, ErrImpostor},
		"another key":      {wrong.Member("new", "old"), ErrImpostor},
		"sent back":        {claim.MAC, ErrImpostor},
		"another member":   {p.Member("new", "other"), ErrImpostor},
		"another newcomer": {p.Member("other", "old"), ErrImpostor},
	} {
		answer := answerTo(answerIn, p, claim, proofOf(1).Key)
		copy(answer[9:], made.proof[:])
		secret, err := readAnswer(answer, p, claim)
		if !errors.Is(err, made.want) || (secret == nil) != (made.want != nil) {
			t.Errorf("%s: %v, secret of %d bytes", name, err, len(secret))
		}
	}
}
