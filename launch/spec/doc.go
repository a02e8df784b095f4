// Package spec has the plain data of a job: what users ask for (Options and its parts), and what they
// get (Result, Status, Ticket, Check). Package launch has all of it under the same names, so programs
// import only that one.
//
// It is at the bottom of the rooms of package launch: the launcher, the peers, the agents on other
// hosts and the commands share it. Besides data it has the checks of options, the names of jobs and
// sites, and the forms of lists of hosts and addresses. It starts nothing and opens nothing but the
// folder of logs.
package spec
