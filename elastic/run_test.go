package elastic

import "testing"

// All members get the IDs of the member whose state they get, and else of any that knows them.
func TestRunIDs(t *testing.T) {
	const job, old = 7, 9
	at := func(step int64, run uint64) account { return account{holds: true, step: step, job: job, run: run} }
	newcomer := account{holds: true, step: 5, fresh: true}
	for about, c := range map[string]struct {
		all  []account
		want runIDs
	}{
		"the first view":                  {[]account{at(0, job), at(0, job)}, runIDs{job, job}},
		"one has resumed":                 {[]account{at(0, job), at(4, old), at(0, job)}, runIDs{job, old}},
		"a newcomer is as far as all":     {[]account{newcomer, at(5, old)}, runIDs{job, old}},
		"a newcomer has one more step":    {[]account{at(4, old), newcomer}, runIDs{job, old}},
		"members without a state":         {[]account{{job: job, run: job}, {}}, runIDs{job, job}},
		"two runs, the most common state": {[]account{{holds: true, digest: 1, job: job, run: old}, {holds: true, digest: 2, job: job, run: job}, {holds: true, digest: 2, job: job, run: job}}, runIDs{job, job}},
	} {
		if got := idsOf(c.all); got != c.want {
			t.Errorf("%s: %+v, want %+v", about, got, c.want)
		}
	}
}

// The ID of a job is equal at its members, and differs between jobs.
func TestJobID(t *testing.T) {
	first, other := []Member{{ID: "a"}, {ID: "b"}}, []Member{{ID: "ab"}}
	ids := map[uint64]string{0: "a newcomer"}
	for about, cfg := range map[string]Config{
		"named":     {Job: "job", Peers: first},
		"others":    {Job: "another", Peers: first},
		"unnamed":   {Peers: first},
		"unnamed 2": {Peers: other},
	} {
		r := newRunIDs(&cfg)
		if was, there := ids[r.job]; there || r.run != r.job {
			t.Errorf("%s: %+v, as %s", about, r, was)
		}
		ids[r.job] = about
	}
	if got := newRunIDs(&Config{Job: "job"}); got.run != 0 || ids[got.job] != "named" {
		t.Errorf("a newcomer of the launcher: %+v", got)
	}
	if got := newRunIDs(&Config{}); got != (runIDs{}) {
		t.Errorf("a newcomer: %+v", got)
	}
}

// A run goes on under the ID in its checkpoint.
func TestResumed(t *testing.T) {
	var none *Group
	if err := none.Sessions().Resumed("0000000000000001"); err == nil || none.Sessions().Run() != (Run{}) {
		t.Errorf("no group: error %v, run %v", err, none.Sessions().Run())
	}
	g := &Group{orders: newOrders()}
	for _, id := range []string{"", "1", "x", "0000000000000000", "000000000000000A", "00000000000000001"} {
		if err := g.Sessions().Resumed(id); err == nil {
			t.Errorf("%q is accepted", id)
		}
	}
	if err := g.Sessions().Resumed("00000000000000ab"); err != nil || g.Sessions().Run().ID != "00000000000000ab" {
		t.Errorf("error %v, run %v", err, g.Sessions().Run())
	}
}
