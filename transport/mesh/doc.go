// Package mesh has the session protocol between the members of a group, once for all
// networks: who enters a view with whom, messages and signals, revocation and closing,
// control messages, and requests with long answers. It runs over a Carrier, which only makes
// streams between two identities.
package mesh
