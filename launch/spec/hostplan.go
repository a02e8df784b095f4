package spec

// HostPlan is what a launcher would do for one of Remote.Hosts.
type HostPlan struct {
	Host string
	// Peers is the number of peers that the host gets; -1 means one for each of its cores, which are not known yet.
	Peers int
	// Command connects to the host and starts an agent there.
	Command []string
	// Copied is the file that the host gets a copy of, if it has none; "" for none.
	Copied string
	// Program is what the agent starts for each peer, in the folder Dir with the variables Env.
	Program []string
	Dir     string
	Env     []string
}
