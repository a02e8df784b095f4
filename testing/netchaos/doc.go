// Package netchaos holds the tests that need a real network with faults: each host is a
// network namespace with its own elrun, and a bridge connects them. Peers are stopped,
// cut off in one or both directions, and left alone; the event logs tell afterwards
// whether the group did what it must.
//
// The tests make the namespaces themselves and remove them at their end, which takes
// root, the commands ip (iproute2) and nft (nftables), and for hosts far from each other
// /dev/net/tun. Nothing leaves the namespaces, and no address is given outside of them. Where
// something is missing the tests say so and are skipped, but with ELRUN_CI set they fail.
//
//	go test ./testing/netchaos                                      short forms
//	go test ./testing/netchaos -run Detect -v -runs=20              stopped, black holes
//	go test ./testing/netchaos -run Partition -v -runs=200 -timeout 5h
//	go test ./testing/netchaos -run Partition -v -runs=1 -seed=7    the faults of a seed
//	go test ./testing/netchaos -run Quiet -v -minutes=10 -timeout 1h
//	go test ./testing/netchaos -run Many -v -long                   32, 64 and 256 peers
//	go test ./testing/netchaos -run State -v -long                  400 MB
//	go test ./testing/netchaos -run FarHosts -v -long               local steps over slow links
//	go test ./testing/netchaos -v -long -timeout 5h                 all long forms
//
// With -keep=DIR event logs and outputs are left in DIR.
//
// # What is checked
//
// Training is exact, so a step has the same digest whoever took part. That alone would not
// show a group that was split in two, as both halves would compute the same: journal
// and ledger look at who was in each epoch, and that the microbatches of every step were
// contributed once. A second group would contribute them again.
package netchaos
