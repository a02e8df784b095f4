package attack

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"

	"github.com/elrun/elrun/elastic"
)

// The attacks in this file send requests.

// flood sends several requests with each body to all members at the same time. It accepts answers
// and refusals, because the members also answer an honest newcomer.
func (a *attacker) flood(ctx context.Context, bodies ...[]byte) error {
	var all sync.WaitGroup
	defer all.Wait()
	for _, m := range a.members {
		for _, body := range bodies {
			for range 4 {
				all.Go(func() { _, _ = a.request(ctx, m.ID, body) })
			}
		}
	}
	return nil
}

// offers sends an honest offer, offers with texts that are too long, and an offer in the name of a
// member.
func (a *attacker) offers(ctx context.Context) error {
	long := string(bytes.Repeat([]byte("x"), 40<<10))
	return a.flood(ctx,
		a.offer(nil),
		a.offer(map[string]any{"settings": []elastic.Setting{{Name: long, Value: "1"}}, "level": true}),
		a.offer(map[string]any{"member": a.members[0], "level": true, "admitted": true}),
		a.offer(map[string]any{"member": elastic.Member{ID: a.host.ID(), Host: long}, "state": false}),
	)
}

// requests sends invalid requests, among them invalid requests for the state.
func (a *attacker) requests(ctx context.Context) error {
	noise := make([]byte, elastic.MaxRequest)
	for i := range noise {
		noise[i] = byte(rand.Uint32())
	}
	noise[0] = 't'
	return a.flood(ctx, nil, []byte("t"), []byte("o{"), []byte("x"), noise, append([]byte("o"), noise[1:]...))
}
