package attack

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/elrun/elrun/elastic"
	"github.com/elrun/elrun/elastic/member"
)

// The attacks in this file send control messages. Function repeat calls an attack again until ctx
// ends.

// forgeViews sends view changes that the members have not decided, with invalid signatures or none.
// It also sends views of its own, with keys that rank above the keys of all members.
func (a *attacker) forgeViews(ctx context.Context) error {
	real, _, err := a.view(ctx)
	if err != nil {
		return err
	}
	ids := real.Base.IDs()
	keys := a.host.Endpoint(elastic.Member{}).Keys
	var proof member.Certificate
	for rank := range ids {
		proof.Votes = append(proof.Votes, member.Vote{Rank: uint32(rank), Signature: keys.Sign([]byte("elrun accepted view\n"))})
	}
	self := member.Member{ID: member.ID(a.host.ID()), Info: "{}"}
	high := member.Key{Stable: 1 << 60, Epoch: 1 << 60, ID: self.ID}
	own, err := member.First([]member.Member{self})
	if err != nil {
		return err
	}
	own.Epoch = 1 << 40
	all := []member.Message{{Base: &own, Key: high, View: own.Hash()}, {Base: &own, Key: high, View: real.View}}
	for _, c := range []member.Change{
		{Lost: ids[1:]}, {Lost: ids[:1], Forced: true}, {Left: ids[:1]}, {Join: []member.Member{self}}, {Renew: true},
	} {
		d := []member.Decision{{Change: c, Proof: proof}}
		bare := []member.Decision{{Change: c}}
		all = append(all,
			member.Message{After: real.Base.Hash(), Changes: bare}, member.Message{After: real.View, Changes: d},
			member.Message{Base: real.Base, Changes: slices.Concat(real.Changes, d), Key: high})
	}
	for _, m := range all {
		m.Kind = member.Chain
		a.sendAll(ctx, machine(m))
	}
	return nil
}

// pretend sends messages of all kinds that only a voter of the present view may send.
func (a *attacker) pretend(ctx context.Context) error {
	real, _, err := a.view(ctx)
	if err != nil {
		return err
	}
	ids := real.Base.IDs()
	report := &member.Report{Seq: 1 << 40, Dead: ids, Unreachable: ids, Leaving: true, Renew: true}
	ballot := member.Ballot{Round: 1 << 40, Rank: 1}
	for k := member.Status; k <= member.Fence; k++ {
		if k == member.Chain {
			continue // forgeViews sends this kind
		}
		a.sendAll(ctx, machine(member.Message{Kind: k, Epoch: real.Epoch, View: real.View, Ballot: ballot, Seen: ballot,
			Change: &member.Change{Lost: ids[1:]}, Report: report}))
	}
	return nil
}

// replay sends a message of one member to all members again, 50 times.
func (a *attacker) replay(ctx context.Context) error {
	_, letter, err := a.view(ctx)
	if err != nil {
		return err
	}
	for range 50 {
		a.sendAll(ctx, letter)
	}
	return nil
}

// letters sends every kind of control message, and kinds that do not exist.
func (a *attacker) letters(ctx context.Context) error {
	beat := []byte{beatLetter, 0xff &^ (1 << 5)} // all flags except flagFirst, after which a hash would follow
	beat = binary.AppendUvarint(binary.AppendUvarint(beat, 1<<40), 1<<40)
	all := [][]byte{nil, beat, append(slices.Clone(beat), "busy"...), {yieldLetter, 1}, {foreignLetter}}
	for kind := range byte(lastLetter) {
		all = append(all, []byte{kind}, []byte{kind, 1}, []byte{kind, 0, 0, 0, 0})
	}
	for _, letter := range all {
		a.sendAll(ctx, letter)
	}
	return nil
}

// junk sends random bytes, up to the maximum length of a message.
func (a *attacker) junk(ctx context.Context) error {
	rng := rand.New(rand.NewPCG(rand.Uint64(), 0))
	for _, n := range []int{1, 2, 40, 1000, elastic.MaxControl} {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		b[0] = byte(rng.IntN(lastLetter))
		if n > 2 && b[0] == memberLetter {
			b[1], b[2] = 2, byte(1+rng.IntN(int(member.Fence)))
		}
		a.sendAll(ctx, b)
	}
	return nil
}
