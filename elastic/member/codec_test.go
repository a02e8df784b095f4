package member

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

func drawID() *rapid.Generator[ID] {
	return rapid.Map(rapid.StringN(1, 6, MaxID), func(s string) ID { return ID(s) })
}

// drawMembers draws up to n members with different IDs.
func drawMembers(t *rapid.T, n int, label string) []Member {
	ids := rapid.SliceOfNDistinct(drawID(), 0, n, rapid.ID[ID]).Draw(t, label)
	var all []Member
	for _, id := range ids {
		all = append(all, Member{ID: id, Info: rapid.StringN(0, 3, 9).Draw(t, label+" info"),
			By: ID(rapid.StringN(0, 3, 9).Draw(t, label+" by")), Was: ID(rapid.StringN(0, 3, 9).Draw(t, label+" was"))})
	}
	return all
}

func drawIDs(t *rapid.T, label string) []ID {
	ids := rapid.SliceOfN(drawID(), 0, 4).Draw(t, label)
	if len(ids) == 0 {
		return nil
	}
	return ids
}

func drawGrants(t *rapid.T) []Grant {
	var all []Grant
	for range rapid.IntRange(0, 2).Draw(t, "grants") {
		all = append(all, Grant{Key: drawID().Draw(t, "key"), Issuer: drawID().Draw(t, "issuer"), Made: rapid.Int64().Draw(t, "made"),
			Expiry: rapid.Int64().Draw(t, "expiry"), Uses: rapid.Uint64().Draw(t, "uses"), Used: rapid.Uint64().Draw(t, "used"),
			Revoked: rapid.Bool().Draw(t, "revoked"), Record: rapid.StringN(0, 3, 9).Draw(t, "record")})
	}
	return all
}

func drawChange(t *rapid.T) Change {
	return Change{Lost: drawIDs(t, "lost"), Left: drawIDs(t, "left"), Join: drawMembers(t, 3, "join"),
		Forced: rapid.Bool().Draw(t, "forced"), Renew: rapid.Bool().Draw(t, "renew for"),
		Kick: drawIDs(t, "kick"), Grants: drawGrants(t), Revoke: drawIDs(t, "revoke")}
}

func drawDecision(t *rapid.T) Decision {
	d := Decision{drawChange(t), Certificate{Ballot: drawBallot(t)}}
	for range rapid.IntRange(0, 2).Draw(t, "votes") {
		d.Proof.Votes = append(d.Proof.Votes, Vote{rapid.Uint32Range(0, MaxMembers-1).Draw(t, "rank"), drawSignature(t)})
	}
	return d
}

func drawSignature(t *rapid.T) []byte {
	return rapid.SliceOfN(rapid.Byte(), 1, MaxSignature).Draw(t, "signature")
}

func drawBallot(t *rapid.T) Ballot {
	return Ballot{rapid.Uint64().Draw(t, "round"), rapid.Uint32Range(0, MaxMembers-1).Draw(t, "rank")}
}

func drawHash(t *rapid.T) (h Hash) {
	copy(h[:], rapid.SliceOfN(rapid.Byte(), len(h), len(h)).Draw(t, "hash"))
	return h
}

func drawReport(t *rapid.T) *Report {
	r := &Report{Seq: rapid.Uint64().Draw(t, "seq"), Unreachable: drawIDs(t, "unreachable"), Dead: drawIDs(t, "dead"),
		Leaving: rapid.Bool().Draw(t, "leaving"), Renew: rapid.Bool().Draw(t, "renew"),
		Grants: drawGrants(t), Revoke: drawIDs(t, "revoke"), Kick: drawIDs(t, "kick")}
	for _, m := range drawMembers(t, 2, "joins") {
		r.Joins = append(r.Joins, Request{m, rapid.Uint64().Draw(t, "at")})
	}
	return r
}

// drawMessage draws a message with the parts of its kind.
func drawMessage(t *rapid.T) Message {
	m := Message{Kind: Kind(rapid.Uint8Range(uint8(Status), uint8(Fence)).Draw(t, "kind")), Epoch: rapid.Uint64().Draw(t, "epoch"), View: drawHash(t)}
	parts, _ := layout(m.Kind)
	if parts&partBallot != 0 {
		m.Ballot = drawBallot(t)
	}
	if parts&partSeen != 0 {
		m.Seen = drawBallot(t)
	}
	if parts&partChange != 0 && (m.Kind == Accept || rapid.Bool().Draw(t, "change")) {
		c := drawChange(t)
		m.Change = &c
	}
	if parts&partReport != 0 {
		m.Report = drawReport(t)
	}
	if parts&partChain != 0 {
		drawChain(t, &m)
	}
	if parts&partRequest != 0 && rapid.Bool().Draw(t, "request") {
		m.Request = &Request{Member{ID: "j", Info: "info"}, 7}
	}
	if parts&partSignature != 0 {
		m.Signature = drawSignature(t)
	}
	return m
}

func drawChain(t *rapid.T, m *Message) {
	if rapid.Bool().Draw(t, "based") {
		members := append([]Member{{ID: "\x00first"}}, drawMembers(t, 4, "members")...)
		m.Base = &View{Epoch: 4, Parent: drawHash(t), Members: members, Voters: rapid.IntRange(1, len(members)).Draw(t, "voters"),
			Reason: ForLost, Founder: "f", Grants: drawGrants(t), Barred: drawIDs(t, "barred")}
		m.Base.hash, m.Base.size = m.Base.contentHash()
		m.Key = Key{rapid.Uint64().Draw(t, "stable"), "f", 3, drawID().Draw(t, "id")}
	} else {
		m.After = drawHash(t)
	}
	for range rapid.IntRange(0, 3).Draw(t, "changes") {
		m.Changes = append(m.Changes, drawDecision(t))
	}
}

// Decoding an encoded message returns the same message, and different messages have different
// encodings.
func TestEncodeDecode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMessage(t)
		b := Encode(nil, m)
		got, err := Decode(b)
		if err != nil || !reflect.DeepEqual(got, m) {
			t.Fatalf("got %+v, %v; want %+v", got, err, m)
		}
		if _, err := Decode(b[:len(b)-1]); err == nil {
			t.Fatal("decoded without its last byte")
		}
		if _, err := Decode(append(b, 0)); !errors.Is(err, ErrFormat) {
			t.Fatalf("one byte too many: %v", err)
		}
	})
}

// Any accepted input is the output of Encode, and no input causes a panic.
func FuzzDecode(f *testing.F) {
	change := Change{Lost: []ID{"a"}, Join: []Member{{ID: "d", Info: "x", By: "k", Was: "w"}}, Kick: []ID{"e"}, Revoke: []ID{"k"},
		Grants: []Grant{{Key: "k", Issuer: "a", Expiry: 5, Uses: 1, Record: "r"}}}
	v, err := First([]Member{{ID: "a"}, {ID: "b", Info: "addr"}}, Grant{Key: "g"})
	if err != nil {
		f.Fatal(err)
	}
	for k := Kind(0); k <= Fence+1; k++ {
		f.Add(Encode(nil, Message{Kind: k, Epoch: 3, Ballot: Ballot{2, 1}, Change: &change,
			Report:  &Report{Dead: []ID{"b"}, Joins: []Request{{Member{ID: "d"}, 2}}, Grants: change.Grants},
			Base:    &v,
			Changes: []Decision{{change, Certificate{Ballot{1, 1}, []Vote{{1, []byte("signed")}}}}}, Request: &Request{Member{ID: "d"}, 2}, Key: Key{9, "f", 3, "a"}}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Decode(b)
		if err != nil {
			if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrLimit) {
				t.Fatalf("unknown error %v", err)
			}
			return
		}
		if again := Encode(nil, m); !bytes.Equal(again, b) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", b, m, again)
		}
	})
}

// A Chain, the longest message, stays within the limit.
func TestChainsFit(t *testing.T) {
	var members []Member
	info, key := string(make([]byte, MaxInfo)), ID(make([]byte, MaxKey))
	var grants []Grant
	for i := range MaxGrants {
		grants = append(grants, Grant{Key: ID(fmt.Sprintf("%0*d", MaxKey, i)), Record: string(make([]byte, MaxRecord))})
	}
	for i := range MaxMembers {
		members = append(members, Member{ID: ID(fmt.Sprintf("%0*d", MaxID, i)), Info: info, By: key, Was: key})
	}
	if _, err := First(members, grants...); !errors.Is(err, ErrChange) {
		t.Errorf("a view that fits into no message: %v", err)
	}
	// The largest possible number of the longest members.
	members = members[:(MaxView-spare)/len(appendMember(nil, members[0]))]
	m, err := New(Config{Self: members[0], Grants: grants}, members)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		c := Change{Lost: m.view.IDs()[1:900]}
		for j := range 899 {
			c.Join = append(c.Join, Member{ID: ID(fmt.Sprintf("%d%0*d", i+1, MaxID-1, j)), Info: info})
		}
		v, err := m.view.Apply(c)
		if err != nil {
			t.Fatal(err)
		}
		m.move(Decision{Change: c}, v)
	}
	m.Ready()
	m.catchUp.sendBase("x", m.conflict.key())
	m.catchUp.sendChain("x", m.history.base.hash)
	for _, msg := range m.Ready().Messages {
		b := Encode(nil, msg)
		if got, err := Decode(b); err != nil || len(got.Changes) == 0 && got.Base == nil {
			t.Errorf("%d bytes, %d changes: %v", len(b), len(got.Changes), err)
		}
	}
}

// A view whose encoding ends soon after its number of voters can be decoded.
func TestShortEndOfView(t *testing.T) {
	var members []Member
	for i := range 400 {
		members = append(members, Member{ID: ID(fmt.Sprintf("%04d", i))})
	}
	m, err := New(Config{Self: members[0]}, members)
	if err != nil {
		t.Fatal(err)
	}
	m.catchUp.sendBase("x", m.conflict.key())
	if got, err := Decode(Encode(nil, m.Ready().Messages[0])); err != nil || got.Base.Voters != 400 {
		t.Error(err)
	}
}
