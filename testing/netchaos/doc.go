// Package netchaos has the tests that need a real network with faults. Each host is a network namespace with its own elrun, and a
// bridge connects the hosts. Tests stop peers, cut them off in one or both directions, and let them recover. At the end they check
// the event logs of the group.
//
// The tests create the namespaces, and remove them at their end. This needs root and the commands ip (iproute2) and nft
// (nftables); tests of distant hosts also need /dev/net/tun. No packet leaves the namespaces, and the host itself gets no new
// address. If something is missing, the tests are skipped with the reason. If ELRUN_CI is set they fail instead.
//
//	go test ./testing/netchaos                                      short forms
//	go test ./testing/netchaos -run Detect -v -runs=20              stopped, black holes
//	go test ./testing/netchaos -run KillLarge -v -long              peers with 4 GB on other hosts; takes 12 GB
//	go test ./testing/netchaos -run Partition -v -runs=200 -timeout 5h
//	go test ./testing/netchaos -run Partition -v -runs=1 -seed=7    the faults of a seed
//	go test ./testing/netchaos -run Quiet -v -minutes=10 -timeout 1h
//	go test ./testing/netchaos -run Many -v -long                   32, 64 and 256 peers
//	go test ./testing/netchaos -run State -v -long                  400 MB
//	go test ./testing/netchaos -run FarHosts -v -long               local steps over slow links
//	go test ./testing/netchaos -run Lossy -v -long                  slow links that lose packets
//	go test ./testing/netchaos -v -long -timeout 5h                 all long forms
//
// With -keep=DIR the tests leave event logs and outputs in DIR.
//
// # What is checked
//
// Training is exact, so the digest of a step does not depend on which peers were members. Digests
// alone would not show a split brain, because both halves would compute the same digests. Therefore
// the ledger also checks that each epoch has one list of members, and that each microbatch of every
// step was contributed once. A second half would contribute the microbatches again.
package netchaos
