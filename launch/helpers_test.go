package launch

import "github.com/elrun/elrun/elastic"

// memberAt returns a made-up peer.
func memberAt(i int) elastic.Member {
	return elastic.Member{ID: peerID(i), Index: i, Host: "host"}
}
