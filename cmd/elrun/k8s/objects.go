package k8s

import (
	"strings"

	"go.yaml.in/yaml/v3"
)

// Parts of the Kubernetes API's objects, with the API's names: only fields that the manifest uses.
// The API's own Go packages would add large dependencies for these few fields. A field without
// omitempty is written even if it is zero, because the API's default is another value.

// labels is any of the API's maps from strings to strings: labels, annotations, quantities of
// resources, data of a Secret.
type labels map[string]string

// metadata is an ObjectMeta.
type metadata struct {
	Name        string `yaml:"name,omitempty"`
	Namespace   string `yaml:"namespace,omitempty"`
	Labels      labels `yaml:"labels,omitempty"`
	Annotations labels `yaml:"annotations,omitempty"`
}

// object is any top-level object of the manifest. Only a Secret has Type and StringData; all
// others have a Spec.
type object struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   metadata `yaml:"metadata"`
	Type       string   `yaml:"type,omitempty"`
	StringData labels   `yaml:"stringData,omitempty"`
	Spec       any      `yaml:"spec,omitempty"`
}

// port is a ServicePort or a ContainerPort.
type port struct {
	Name          string `yaml:"name"`
	Port          int    `yaml:"port,omitempty"`
	ContainerPort int    `yaml:"containerPort,omitempty"`
	Protocol      string `yaml:"protocol"`
}

// serviceSpec is a ServiceSpec.
type serviceSpec struct {
	ClusterIP                string `yaml:"clusterIP"`
	PublishNotReadyAddresses bool   `yaml:"publishNotReadyAddresses"`
	Selector                 labels `yaml:"selector"`
	Ports                    []port `yaml:"ports"`
}

// selector is a LabelSelector.
type selector struct {
	MatchLabels labels `yaml:"matchLabels"`
}

// budgetSpec is a PodDisruptionBudgetSpec.
type budgetSpec struct {
	MinAvailable               int      `yaml:"minAvailable"`
	UnhealthyPodEvictionPolicy string   `yaml:"unhealthyPodEvictionPolicy"`
	Selector                   selector `yaml:"selector"`
}

// jobSpec is a JobSpec.
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

// successPolicy is a Job's SuccessPolicy: when the Job counts as complete.
type successPolicy struct {
	Rules []successRule `yaml:"rules"`
}

// successRule is a SuccessPolicyRule.
type successRule struct {
	SucceededCount int `yaml:"succeededCount"`
}

// failurePolicy is a PodFailurePolicy: the consequences of the failure of a pod.
type failurePolicy struct {
	Rules []failureRule `yaml:"rules"`
}

// failureRule is a PodFailurePolicyRule.
type failureRule struct {
	Action          string         `yaml:"action"`
	OnPodConditions []podCondition `yaml:"onPodConditions,omitempty"`
	OnExitCodes     *exitCodes     `yaml:"onExitCodes,omitempty"`
}

// podCondition is a PodFailurePolicyOnPodConditionsPattern.
type podCondition struct {
	Type   string `yaml:"type"`
	Status string `yaml:"status"`
}

// exitCodes is a PodFailurePolicyOnExitCodesRequirement.
type exitCodes struct {
	ContainerName string `yaml:"containerName"`
	Operator      string `yaml:"operator"`
	Values        []int  `yaml:"values"`
}

// podTemplate is a PodTemplateSpec.
type podTemplate struct {
	Metadata metadata `yaml:"metadata"`
	Spec     podSpec  `yaml:"spec"`
}

// podSpec is a PodSpec.
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

// podSecurity is a PodSecurityContext.
type podSecurity struct {
	RunAsNonRoot   bool        `yaml:"runAsNonRoot"`
	RunAsUser      int         `yaml:"runAsUser"`
	RunAsGroup     int         `yaml:"runAsGroup"`
	FSGroup        int         `yaml:"fsGroup"`
	SeccompProfile typedObject `yaml:"seccompProfile"`
}

// typedObject is an object with only a type, as a SeccompProfile.
type typedObject struct {
	Type string `yaml:"type"`
}

// spread is a TopologySpreadConstraint.
type spread struct {
	MaxSkew           int      `yaml:"maxSkew"`
	TopologyKey       string   `yaml:"topologyKey"`
	WhenUnsatisfiable string   `yaml:"whenUnsatisfiable"`
	LabelSelector     selector `yaml:"labelSelector"`
}

// container is a Container.
type container struct {
	Name            string            `yaml:"name"`
	Image           string            `yaml:"image"`
	Command         []argument        `yaml:"command"`
	Env             []variable        `yaml:"env"`
	Ports           []port            `yaml:"ports"`
	ReadinessProbe  probe             `yaml:"readinessProbe"`
	Resources       resources         `yaml:"resources"`
	SecurityContext containerSecurity `yaml:"securityContext"`
	VolumeMounts    []mount           `yaml:"volumeMounts"`
}

// argument is an argument of a command. Every other text of a manifest has one line.
type argument string

// MarshalYAML implements yaml.Marshaler. It puts an argument of several lines in double quotes: the
// encoder would choose a block, which no YAML parser can read if the first line begins with a tab.
func (a argument) MarshalYAML() (any, error) {
	if !strings.ContainsAny(string(a), "\n\r\u0085\u2028\u2029") {
		return string(a), nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: string(a), Style: yaml.DoubleQuotedStyle}, nil
}

// probe is a Probe that connects to a TCP port.
type probe struct {
	TCPSocket     portNumber `yaml:"tcpSocket"`
	PeriodSeconds int        `yaml:"periodSeconds"`
}

// portNumber is a TCPSocketAction.
type portNumber struct {
	Port int `yaml:"port"`
}

// variable is an EnvVar.
type variable struct {
	Name      string      `yaml:"name"`
	Value     string      `yaml:"value,omitempty"`
	ValueFrom *fieldValue `yaml:"valueFrom,omitempty"`
}

// fieldValue is an EnvVarSource.
type fieldValue struct {
	FieldRef fieldRef `yaml:"fieldRef"`
}

// fieldRef is an ObjectFieldSelector.
type fieldRef struct {
	FieldPath string `yaml:"fieldPath"`
}

// resources is a ResourceRequirements.
type resources struct {
	Requests labels `yaml:"requests"`
	Limits   labels `yaml:"limits"`
}

// containerSecurity is a SecurityContext.
type containerSecurity struct {
	AllowPrivilegeEscalation bool         `yaml:"allowPrivilegeEscalation"`
	ReadOnlyRootFilesystem   bool         `yaml:"readOnlyRootFilesystem"`
	Capabilities             capabilities `yaml:"capabilities"`
}

// capabilities is a Capabilities.
type capabilities struct {
	Drop []string `yaml:"drop"`
}

// mount is a VolumeMount.
type mount struct {
	Name      string `yaml:"name"`
	MountPath string `yaml:"mountPath"`
	ReadOnly  bool   `yaml:"readOnly,omitempty"`
}

// volume is a Volume; one of its sources is set.
type volume struct {
	Name     string        `yaml:"name"`
	EmptyDir *emptyDir     `yaml:"emptyDir,omitempty"`
	Secret   *secretVolume `yaml:"secret,omitempty"`
}

// emptyDir is an EmptyDirVolumeSource.
type emptyDir struct {
	SizeLimit string `yaml:"sizeLimit"`
}

// secretVolume is a SecretVolumeSource.
type secretVolume struct {
	SecretName  string `yaml:"secretName"`
	DefaultMode int    `yaml:"defaultMode"`
}
