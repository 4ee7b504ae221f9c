package rendezvous

import (
	"strconv"
	"strings"
)

// detectFlux reads what flux run leaves.
func detectFlux(env func(string) string) (Launch, bool, error) {
	l := unknownLaunch()
	found, err := numbers(env, &l, "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", "")
	if !found {
		return l, false, err
	}
	if id := env("FLUX_JOB_ID"); id != "" {
		l.JobKey = "flux " + id
		l.Port = derivedPort(l.JobKey)
	}
	if env("FLUX_JOB_NNODES") == "1" {
		l.LocalSize = l.Procs
		l.Controller, l.ControllerFrom = "127.0.0.1", "all processes are on this host"
		return l, true, nil
	}
	l.Advice = `Flux does not list the hosts in the environment: name the first one with -C "$(flux resource list -no {nodelist} | flux hostlist -n 0)" or -C HOST`
	return l, true, nil
}

// detectPALS reads what mpiexec of HPE's PALS leaves where it does not set
// PMI_RANK as well.
func detectPALS(env func(string) string) (Launch, bool, error) {
	l := unknownLaunch()
	found, err := numbers(env, &l, "PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID", "PALS_LOCAL_SIZE")
	if !found {
		return l, false, err
	}
	if id := env("PALS_APID"); id != "" {
		l.JobKey = "pals " + id
		l.Port = derivedPort(l.JobKey)
	}
	meetInMPI(env, &l)
	if l.Controller == "" {
		l.Advice = `PALS does not list the hosts in the environment: name the first one with -C "$(head -n 1 "$PBS_NODEFILE")"`
	}
	return l, true, nil
}

// detectJSM reads what jsrun of LSF leaves.
func detectJSM(env func(string) string) (Launch, bool, error) {
	l := unknownLaunch()
	found, err := numbers(env, &l, "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK", "JSM_NAMESPACE_LOCAL_SIZE")
	if !found {
		return l, false, err
	}
	if job := env("LSB_JOBID"); job != "" {
		// Several jsruns of one LSF job have nothing in the environment that tells them apart.
		l.Port = derivedPort("lsf " + job)
	}
	meetInMPI(env, &l)
	if l.Controller == "" {
		l.Advice = "LSF does not list compute hosts in LSB_MCPU_HOSTS: name the first one with -C HOST"
	}
	return l, true, nil
}

// detectTorch reads the names that torchrun made common: RANK, WORLD_SIZE,
// LOCAL_RANK, MASTER_ADDR. MASTER_PORT is taken by its own store, so it only
// tells jobs apart.
func detectTorch(env func(string) string) (Launch, bool, error) {
	l := unknownLaunch()
	found, err := numbers(env, &l, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
	if !found {
		return l, false, err
	}
	id := env("TORCHELASTIC_RUN_ID")
	if id == "none" { // torchrun's default
		id = ""
	}
	if id != "" || env("MASTER_PORT") != "" {
		l.JobKey = strings.Join([]string{"torchrun", id, env("MASTER_PORT"), strconv.Itoa(atoi(env("TORCHELASTIC_RESTART_COUNT")))}, " ")
		l.Port = derivedPort(l.JobKey)
	}
	switch {
	case env("MASTER_ADDR") != "":
		l.Controller, l.ControllerFrom = env("MASTER_ADDR"), "MASTER_ADDR"
	case l.LocalSize == l.Procs:
		l.Controller, l.ControllerFrom = "127.0.0.1", "all processes are on this host"
	default:
		l.Advice = "RANK and WORLD_SIZE are set but not MASTER_ADDR: name the host of process 0 with -C HOST"
	}
	return l, true, nil
}

// detectKubernetes reads what an indexed job leaves: the index. The number of
// completions is not in the environment.
func detectKubernetes(env func(string) string) (Launch, bool, error) {
	l := unknownLaunch()
	index := env("JOB_COMPLETION_INDEX")
	if index == "" {
		return l, false, nil
	}
	var err error
	if l.Proc, err = envNumber("JOB_COMPLETION_INDEX", index, 0); err != nil {
		return l, false, err
	}
	// The pod's name is JOB-INDEX; with setHostnameAsFQDN the service follows it.
	pod, service, qualified := strings.Cut(env("HOSTNAME"), ".")
	job, ok := strings.CutSuffix(pod, "-"+index)
	switch {
	case ok && job != "" && qualified && service != "":
		l.Controller, l.ControllerFrom = job+"-0."+service, "pod 0 of this one's HOSTNAME"
	case ok && job != "":
		l.Advice = "name pod 0 with -C " + clip([]byte(job)) + "-0.SERVICE, where SERVICE is the headless service that the pods' subdomain names, and the number of completions with -P"
	default:
		l.Advice = "name pod 0 with -C JOB-0.SERVICE, where SERVICE is the headless service that the pods' subdomain names, and the number of completions with -P"
	}
	return l, true, nil
}
