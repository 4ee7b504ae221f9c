package hosts

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// What a manifest of this kind may say, by the names of Kubernetes' API (v1,
// batch/v1). A key that is not here fails the test: it is misspelt, in the wrong
// place, or its meaning has not been looked at.
type (
	metadata struct {
		Name   string            `yaml:"name"`
		Labels map[string]string `yaml:"labels"`
	}
	service struct {
		APIVersion string   `yaml:"apiVersion"`
		Kind       string   `yaml:"kind"`
		Metadata   metadata `yaml:"metadata"`
		Spec       struct {
			ClusterIP                string            `yaml:"clusterIP"`
			PublishNotReadyAddresses bool              `yaml:"publishNotReadyAddresses"`
			Selector                 map[string]string `yaml:"selector"`
		} `yaml:"spec"`
	}
	indexedJob struct {
		APIVersion string   `yaml:"apiVersion"`
		Kind       string   `yaml:"kind"`
		Metadata   metadata `yaml:"metadata"`
		Spec       struct {
			CompletionMode        string `yaml:"completionMode"`
			Completions           int    `yaml:"completions"`
			Parallelism           int    `yaml:"parallelism"`
			BackoffLimit          *int   `yaml:"backoffLimit"`
			ActiveDeadlineSeconds int    `yaml:"activeDeadlineSeconds"`
			Template              struct {
				Metadata metadata `yaml:"metadata"`
				Spec     podSpec  `yaml:"spec"`
			} `yaml:"template"`
		} `yaml:"spec"`
	}
	podSpec struct {
		Subdomain                    string `yaml:"subdomain"`
		RestartPolicy                string `yaml:"restartPolicy"`
		EnableServiceLinks           *bool  `yaml:"enableServiceLinks"`
		AutomountServiceAccountToken *bool  `yaml:"automountServiceAccountToken"`
		TopologySpreadConstraints    []struct {
			MaxSkew           int    `yaml:"maxSkew"`
			TopologyKey       string `yaml:"topologyKey"`
			WhenUnsatisfiable string `yaml:"whenUnsatisfiable"`
			LabelSelector     struct {
				MatchLabels map[string]string `yaml:"matchLabels"`
			} `yaml:"labelSelector"`
		} `yaml:"topologySpreadConstraints"`
		Containers []container `yaml:"containers"`
		Volumes    []struct {
			Name     string    `yaml:"name"`
			EmptyDir *struct{} `yaml:"emptyDir"`
		} `yaml:"volumes"`
	}
	container struct {
		Name       string   `yaml:"name"`
		Image      string   `yaml:"image"`
		Command    []string `yaml:"command"`
		Args       []string `yaml:"args"`
		WorkingDir string   `yaml:"workingDir"`
		Resources  struct {
			Requests map[string]string `yaml:"requests"`
		} `yaml:"resources"`
		VolumeMounts []struct {
			Name      string `yaml:"name"`
			MountPath string `yaml:"mountPath"`
		} `yaml:"volumeMounts"`
	}
)

// readManifest decodes the two objects of a manifest; a third one, or a key
// that is not known, is an error.
func readManifest(r io.Reader) (s service, j indexedJob, err error) {
	d := yaml.NewDecoder(r, yaml.DisallowUnknownField())
	if err = d.Decode(&s); err != nil {
		return s, j, err
	}
	if err = d.Decode(&j); err != nil {
		return s, j, err
	}
	var more any
	if err = d.Decode(&more); !errors.Is(err, io.EOF) {
		return s, j, errors.New("more than two objects")
	}
	return s, j, nil
}

// faults of a manifest by the rules of the API and of the program.
func faults(s service, j indexedJob) []string {
	var found []string
	rule := func(holds bool, text string) {
		if !holds {
			found = append(found, text)
		}
	}
	label := regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`) // RFC 1035, as a Service's name has to be
	rule(s.APIVersion == "v1" && s.Kind == "Service", "the first object is a Service of v1")
	rule(s.Spec.ClusterIP == "None", "the Service is headless: clusterIP None, else pods have no names")
	rule(s.Spec.PublishNotReadyAddresses, "pods are known by name before they are ready")
	rule(j.APIVersion == "batch/v1" && j.Kind == "Job", "the second object is a Job of batch/v1")
	rule(label.MatchString(s.Metadata.Name), "the Service's name is a DNS label")
	spec, pod := j.Spec, j.Spec.Template.Spec
	// Pod names and host names are NAME-INDEX, 63 characters at most.
	rule(label.MatchString(j.Metadata.Name+"-"+strconv.Itoa(spec.Completions)), "the Job's name with a number behind it is a DNS label")
	rule(spec.CompletionMode == "Indexed", "pods have numbers: completionMode Indexed")
	rule(spec.Completions > 1 && spec.Parallelism == spec.Completions, "all pods run at once: parallelism is completions")
	rule(spec.BackoffLimit != nil && *spec.BackoffLimit == 0, "a failed job is not repeated pod by pod: backoffLimit 0")
	rule(spec.ActiveDeadlineSeconds > 60, "the job ends some day, but not before --join-timeout: activeDeadlineSeconds")
	rule(pod.RestartPolicy == "Never", "a process that ended is not started again: restartPolicy Never")
	rule(pod.Subdomain == s.Metadata.Name, "the pods' subdomain is the Service's name")
	rule(pod.EnableServiceLinks != nil && !*pod.EnableServiceLinks, "no variables RANKSTORM_… of a Service of that name: enableServiceLinks false")
	for key, value := range s.Spec.Selector {
		rule(j.Spec.Template.Metadata.Labels[key] == value, "the Service selects the pods by "+key)
	}
	rule(len(s.Spec.Selector) > 0, "the Service selects something")
	for _, c := range pod.TopologySpreadConstraints {
		rule(c.MaxSkew >= 1 && c.TopologyKey != "" && slices.Contains([]string{"DoNotSchedule", "ScheduleAnyway"}, c.WhenUnsatisfiable), "topologySpreadConstraints are complete")
		for key, value := range c.LabelSelector.MatchLabels {
			rule(j.Spec.Template.Metadata.Labels[key] == value, "the pods that are spread are these")
		}
	}
	if len(pod.Containers) != 1 {
		return append(found, "a pod has one container")
	}
	c := pod.Containers[0]
	rule(label.MatchString(c.Name) && c.Image != "" && slices.Equal(c.Command, []string{"rankstorm"}), "the container has a name, an image and the command rankstorm")
	after := func(flag string) string {
		if at := slices.Index(c.Args, flag); at >= 0 && at+1 < len(c.Args) {
			return c.Args[at+1]
		}
		return ""
	}
	rule(len(c.Args) > 0 && c.Args[0] == "run", "the first argument is run")
	rule(after("-C") == j.Metadata.Name+"-0."+s.Metadata.Name, "-C is pod 0 by its name in the Service")
	rule(after("-P") == strconv.Itoa(spec.Completions), "-P is completions")
	rule(len(c.VolumeMounts) == 1 && len(pod.Volumes) == 1 && c.VolumeMounts[0].Name == pod.Volumes[0].Name &&
		pod.Volumes[0].EmptyDir != nil && c.VolumeMounts[0].MountPath == c.WorkingDir, "the working directory is a volume that can be written")
	return found
}

// manifest is the example's text and what it says.
func manifest(t *testing.T) (text string, s service, j indexedJob) {
	t.Helper()
	b, err := os.ReadFile(example(t, "kubernetes/job.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if s, j, err = readManifest(strings.NewReader(string(b))); err != nil {
		t.Fatal(err)
	}
	return string(b), s, j
}

func TestKubernetesManifest(t *testing.T) {
	text, s, j := manifest(t)
	for _, fault := range faults(s, j) {
		t.Errorf("broken rule: %s", fault)
	}
	// The rules can fail: each of these is one slip.
	for from, to := range map[string]string{
		"clusterIP: None":         "clusterIP: 10.0.0.1",
		"completionMode: Indexed": "completionMode: NonIndexed",
		"parallelism: 4":          "parallelism: 2",
		"subdomain: rankstorm":    "subdomain: storm",
		`"-P", "4"`:               `"-P", "8"`,
		"restartPolicy: Never":    "restartPolicy: OnFailure",
		"  completions: 4":        "  completion: 4",
		`"rankstorm-0.rankstorm"`: `"rankstorm-0"`,
		"backoffLimit: 0":         "backoffLimit: 6",
		"mountPath: /results":     "mountPath: /elsewhere",
	} {
		slip := strings.Replace(text, from, to, 1)
		s, j, err := readManifest(strings.NewReader(slip))
		if slip == text || (err == nil && len(faults(s, j)) == 0) {
			t.Errorf("%s instead of %s is not noticed", to, from)
		}
	}
}

// The manifest's very command, run as the pods would: their host names, the
// names that the Service makes, and the variables that Kubernetes sets.
func TestExampleKubernetes(t *testing.T) {
	_, s, j := manifest(t)
	hostsUp(t, j.Spec.Completions)
	dir := jobFolder(t)
	var names strings.Builder
	names.WriteString("127.0.0.1 localhost\n")
	addresses := strings.Fields(do(t, "hosts", "list"))
	podName := func(i int) string { return j.Metadata.Name + "-" + strconv.Itoa(i) }
	for i := range j.Spec.Completions {
		names.WriteString(addresses[2*i+1] + " " + podName(i) + "." + s.Metadata.Name + "\n")
	}
	hostsFile := filepath.Join(dir, "hosts")
	if err := os.WriteFile(hostsFile, []byte(names.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	c := j.Spec.Template.Spec.Containers[0]
	var all []*running
	perHost := map[string]int{}
	for i := range j.Spec.Completions {
		pod := `hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"`
		args := []string{
			"exec", host(i), "unshare", "--uts", "--mount", "sh", "-c", pod, "pod", podName(i), hostsFile,
			"env", "JOB_COMPLETION_INDEX=" + strconv.Itoa(i), "HOSTNAME=" + podName(i),
			"KUBERNETES_SERVICE_HOST=10.96.0.1", "KUBERNETES_PORT=tcp://10.96.0.1:443",
		}
		cmd := lab("hosts", append(append(args, c.Command...), c.Args...)...)
		cmd.Dir = dir
		all = append(all, start(t, podName(i), cmd))
		perHost[podName(i)] = 1
	}
	waitAll(t, all, 0, time.Minute)
	d := clean(t, onlyDocument(t, dir), wanted{procs: j.Spec.Completions, connections: allToAll(j.Spec.Completions, 16), perHost: perHost})
	for i, e := range d.Ranks {
		if e.Host != podName(i) {
			t.Errorf("rank %d is pod %s", i, e.Host)
		}
	}
	expected(t, "kubernetes", all[0].stdout.String())
}
