package k8s

// Parts of the Kubernetes API's objects, with the API's names: only fields that the manifest
// uses.

type labels map[string]string

type metadata struct {
	Name        string `yaml:"name,omitempty"`
	Namespace   string `yaml:"namespace,omitempty"`
	Labels      labels `yaml:"labels,omitempty"`
	Annotations labels `yaml:"annotations,omitempty"`
}

type object struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   metadata `yaml:"metadata"`
	Type       string   `yaml:"type,omitempty"`
	StringData labels   `yaml:"stringData,omitempty"`
	Spec       any      `yaml:"spec,omitempty"`
}

type port struct {
	Name          string `yaml:"name"`
	Port          int    `yaml:"port,omitempty"`
	ContainerPort int    `yaml:"containerPort,omitempty"`
	Protocol      string `yaml:"protocol"`
}

type serviceSpec struct {
	ClusterIP                string `yaml:"clusterIP"`
	PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
	Selector                 labels `yaml:"selector"`
	Ports                    []port `yaml:"ports"`
}

type selector struct {
	MatchLabels labels `yaml:"matchLabels"`
}

type budgetSpec struct {
	MinAvailable               int      `yaml:"minAvailable"`
	UnhealthyPodEvictionPolicy string   `yaml:"unhealthyPodEvictionPolicy"`
	Selector                   selector `yaml:"selector"`
}

type jobSpec struct {
	CompletionMode       string        `yaml:"completionMode"`
	Completions          int           `yaml:"completions"`
	Parallelism          int           `yaml:"parallelism"`
	BackoffLimitPerIndex int           `yaml:"backoffLimitPerIndex"`
	PodReplacementPolicy string        `yaml:"podReplacementPolicy"`
	SuccessPolicy        successPolicy `yaml:"successPolicy"`
	PodFailurePolicy     failurePolicy `yaml:"podFailurePolicy"`
	Template             podTemplate   `yaml:"template"`
}

type successPolicy struct {
	Rules []successRule `yaml:"rules"`
}

type successRule struct {
	SucceededCount int `yaml:"succeededCount"`
}

type failurePolicy struct {
	Rules []failureRule `yaml:"rules"`
}

type failureRule struct {
	Action          string         `yaml:"action"`
	OnPodConditions []podCondition `yaml:"onPodConditions,omitempty"`
	OnExitCodes     *exitCodes     `yaml:"onExitCodes,omitempty"`
}

type podCondition struct {
	Type   string `yaml:"type"`
	Status string `yaml:"status"`
}

type exitCodes struct {
	ContainerName string `yaml:"containerName"`
	Operator      string `yaml:"operator"`
	Values        []int  `yaml:"values"`
}

type podTemplate struct {
	Metadata metadata `yaml:"metadata"`
	Spec     podSpec  `yaml:"spec"`
}

type podSpec struct {
	Subdomain                     string      `yaml:"subdomain"`
	RestartPolicy                 string      `yaml:"restartPolicy"`
	TerminationGracePeriodSeconds int         `yaml:"terminationGracePeriodSeconds"`
	AutomountServiceAccountToken  bool        `yaml:"automountServiceAccountToken"`
	EnableServiceLinks            bool        `yaml:"enableServiceLinks"`
	SecurityContext               podSecurity `yaml:"securityContext"`
	TopologySpreadConstraints     []spread    `yaml:"topologySpreadConstraints"`
	Containers                    []container `yaml:"containers"`
	Volumes                       []volume    `yaml:"volumes"`
}

type podSecurity struct {
	RunAsNonRoot   bool        `yaml:"runAsNonRoot"`
	RunAsUser      int         `yaml:"runAsUser"`
	RunAsGroup     int         `yaml:"runAsGroup"`
	FSGroup        int         `yaml:"fsGroup"`
	SeccompProfile typedObject `yaml:"seccompProfile"`
}

type typedObject struct {
	Type string `yaml:"type"`
}

type spread struct {
	MaxSkew           int      `yaml:"maxSkew"`
	TopologyKey       string   `yaml:"topologyKey"`
	WhenUnsatisfiable string   `yaml:"whenUnsatisfiable"`
	LabelSelector     selector `yaml:"labelSelector"`
}

type container struct {
	Name            string            `yaml:"name"`
	Image           string            `yaml:"image"`
	Command         []string          `yaml:"command"`
	Env             []variable        `yaml:"env"`
	Ports           []port            `yaml:"ports"`
	ReadinessProbe  probe             `yaml:"readinessProbe"`
	Resources       resources         `yaml:"resources"`
	SecurityContext containerSecurity `yaml:"securityContext"`
	VolumeMounts    []mount           `yaml:"volumeMounts"`
}

type probe struct {
	TCPSocket     portNumber `yaml:"tcpSocket"`
	PeriodSeconds int        `yaml:"periodSeconds"`
}

type portNumber struct {
	Port int `yaml:"port"`
}

type variable struct {
	Name      string      `yaml:"name"`
	Value     string      `yaml:"value,omitempty"`
	ValueFrom *fieldValue `yaml:"valueFrom,omitempty"`
}

type fieldValue struct {
	FieldRef fieldRef `yaml:"fieldRef"`
}

type fieldRef struct {
	FieldPath string `yaml:"fieldPath"`
}

type resources struct {
	Requests labels `yaml:"requests"`
	Limits   labels `yaml:"limits"`
}

type containerSecurity struct {
	AllowPrivilegeEscalation bool         `yaml:"allowPrivilegeEscalation"`
	ReadOnlyRootFilesystem   bool         `yaml:"readOnlyRootFilesystem"`
	Capabilities             capabilities `yaml:"capabilities"`
}

type capabilities struct {
	Drop []string `yaml:"drop"`
}

type mount struct {
	Name      string `yaml:"name"`
	MountPath string `yaml:"mountPath"`
	ReadOnly  bool   `yaml:"readOnly,omitempty"`
}

type volume struct {
	Name     string        `yaml:"name"`
	EmptyDir *emptyDir     `yaml:"emptyDir,omitempty"`
	Secret   *secretVolume `yaml:"secret,omitempty"`
}

type emptyDir struct {
	SizeLimit string `yaml:"sizeLimit"`
}

type secretVolume struct {
	SecretName  string `yaml:"secretName"`
	DefaultMode int    `yaml:"defaultMode"`
}
