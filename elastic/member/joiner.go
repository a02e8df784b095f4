package member

import "slices"

// joiner brings a newcomer into its first view: it asks the contacts in turn until one of them
// sends a view that contains the newcomer.
type joiner struct {
	*membership

	contacts []ID   // members to ask, in turn; the only peers that are believed
	at       uint64 // Request.At; 0 until a member has answered
	when     uint64 // tick of the next request
	times    int    // number of requests sent
}

// sender classifies the author of a message.
func (j *joiner) sender(id ID) sender {
	if slices.Contains(j.contacts, id) {
		return contact
	}
	return unknown
}

// meet adds a peer to the contacts.
func (j *joiner) meet(id ID) {
	if !slices.Contains(j.contacts, id) {
		j.contacts = append(j.contacts, id)
	}
}

// ask sends a request to the next contact when the request is due, with exponential backoff.
func (j *joiner) ask() {
	if j.tick < j.when || len(j.contacts) == 0 {
		return
	}
	to := j.contacts[j.times%len(j.contacts)]
	j.times++
	j.when = j.tick + j.cfg.Retry<<min(j.times, 4)
	j.sendRequest(to)
}

// sendRequest sends this peer's request to join.
func (j *joiner) sendRequest(to ID) {
	j.send(Message{Kind: Ask, To: to, Request: &Request{Member: j.cfg.Self, At: j.at}})
}

// learnEpoch handles the Status of a contact. The first Status sets the epoch of the request. The
// changes since this epoch show whether this peer's ID is fresh (I2). The epoch stays the same in
// all later requests.
func (j *joiner) learnEpoch(msg Message) {
	switch {
	case j.at == 0:
		j.at = msg.Epoch
		j.sendRequest(msg.From)
	case msg.Epoch > j.at:
		j.when = j.tick // this peer may be in that view: ask at once
	}
}
