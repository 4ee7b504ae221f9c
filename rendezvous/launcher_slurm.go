package rendezvous

import (
	"fmt"
	"strconv"
	"strings"

	"rankstorm/rank"
)

// Step ids from here on are no steps of tasks: the batch script, the shell of
// salloc, external processes (slurm.h: SLURM_BATCH_SCRIPT and its neighbours).
const firstSpecialStep = 0xfffffff0

// detectSlurm believes only a step: a batch script has SLURM_PROCID=0 and
// SLURM_NTASKS as well, and salloc's command has the job's variables.
func detectSlurm(env func(string) string) (Launch, bool, error) {
	l := unknownLaunch()
	job := slurmJob(env)
	step, stepErr := strconv.ParseUint(firstOf(env, "SLURM_STEP_ID", "SLURM_STEPID"), 10, 32)
	if job == "" || stepErr != nil || step >= firstSpecialStep || env("SLURM_PROCID") == "" || env("SLURM_STEP_NUM_TASKS") == "" {
		if job != "" {
			l.Advice = "this is inside Slurm job " + clip([]byte(job)) + " but not a task of a step: put srun in front, as in srun rankstorm run"
		}
		return l, false, nil
	}
	procs := "SLURM_STEP_NUM_TASKS"
	if het, err := strconv.Atoi(env("SLURM_HET_SIZE")); err == nil && het > 1 && atoi(env("SLURM_NTASKS")) > atoi(env(procs)) {
		procs = "SLURM_NTASKS" // counts all components that this step has
	}
	if found, err := numbers(env, &l, "SLURM_PROCID", procs, "SLURM_LOCALID", ""); !found {
		return l, false, err
	}
	l.JobKey = fmt.Sprintf("%s.%d.%d", job, step, atoi(env("SLURM_RESTART_COUNT")))
	var err error
	if l.Port, err = slurmPort(env, job, step); err != nil {
		return l, false, err
	}
	nodesVar := "SLURM_STEP_NODELIST"
	if env(nodesVar) == "" {
		nodesVar = "SLURM_NODELIST"
	}
	nodes := env(nodesVar)
	if nodes == "" {
		l.Advice = "Slurm did not say on which hosts this step runs (SLURM_STEP_NODELIST): name its first host with -C HOST"
		return l, true, nil
	}
	hosts, err := expandHostList(nodes)
	if err != nil {
		return l, false, rank.Errorf(rank.KindUsage, "%s=%s: %w; name the first host with -C HOST", nodesVar, quote(nodes), err)
	}
	l.Controller, l.ControllerFrom = hosts[0], "the first host of "+nodesVar
	l.Hosts = slurmHosts(hosts, firstOf(env, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"), l.Procs)
	// In a step of several components SLURM_NODEID counts within one of them.
	if node, err := strconv.Atoi(env("SLURM_NODEID")); err == nil && env("SLURM_HET_SIZE") == "" && node >= 0 && node < len(l.Hosts) {
		if n := l.Hosts[node].Procs; n > l.LocalIndex {
			l.LocalSize = n
		}
	}
	return l, true, nil
}

// slurmJob is the job's id; all components of a heterogeneous job have the
// first one's.
func slurmJob(env func(string) string) string {
	return firstOf(env, "SLURM_HET_JOB_ID", "SLURM_JOB_ID", "SLURM_JOBID")
}

// slurmPort is the first port that Slurm reserved for the step, or one that
// follows from the ids: 512 jobs in a row with 16 steps each never share one.
func slurmPort(env func(string) string, job string, step uint64) (int, error) {
	if reserved := env("SLURM_STEP_RESV_PORTS"); reserved != "" {
		first := reserved
		if end := strings.IndexAny(first, "-,"); end >= 0 {
			first = first[:end]
		}
		port, err := strconv.Atoi(first)
		if err != nil || port < 1 || port > 65535 {
			return 0, rank.Errorf(rank.KindUsage, "SLURM_STEP_RESV_PORTS=%s: no port; name host and port with -C HOST:PORT", quote(reserved))
		}
		return port, nil
	}
	id, err := strconv.ParseUint(job, 10, 64)
	if err != nil {
		return derivedPort(fmt.Sprint(job, ".", step)), nil
	}
	return firstDerivedPort + int((id%derivedPorts*16+step)%derivedPorts), nil
}

// slurmHosts puts hosts and counts ("5,1(x3)") together; counts that do not
// add up are left out, they serve messages only.
func slurmHosts(hosts []string, counts string, procs int) []LaunchHost {
	out := make([]LaunchHost, len(hosts))
	for i, h := range hosts {
		out[i].Name = h
	}
	each, total := expandCounts(counts, len(hosts)), 0
	for _, n := range each {
		total += n
	}
	if len(each) == len(hosts) && total == procs {
		for i, n := range each {
			out[i].Procs = n
		}
	}
	return out
}

// detectSlurmArray takes the elements of a job array for the processes of one
// job, where each element's script starts one without srun. The elements do
// not know each other's hosts.
func detectSlurmArray(env func(string) string) (Launch, bool, error) {
	l := unknownLaunch()
	job := env("SLURM_ARRAY_JOB_ID")
	id, idErr := strconv.Atoi(env("SLURM_ARRAY_TASK_ID"))
	count, countErr := strconv.Atoi(env("SLURM_ARRAY_TASK_COUNT"))
	low, lowErr := strconv.Atoi(env("SLURM_ARRAY_TASK_MIN"))
	high, highErr := strconv.Atoi(env("SLURM_ARRAY_TASK_MAX"))
	if job == "" || idErr != nil || countErr != nil || lowErr != nil || highErr != nil || count < 1 {
		return l, false, nil
	}
	if id < low || id > high {
		return l, false, contradiction("SLURM_ARRAY_TASK_ID", env("SLURM_ARRAY_TASK_ID"), "SLURM_ARRAY_TASK_MIN", env("SLURM_ARRAY_TASK_MIN"))
	}
	l.Procs, l.JobKey, l.Port = count, "array "+job+"."+strconv.Itoa(atoi(env("SLURM_RESTART_COUNT"))), derivedPort("array "+job)
	// An irregular array (1,3,7) has no formula for the number: the processes are then ordered by host.
	if step := max(atoi(env("SLURM_ARRAY_TASK_STEP")), 1); (high-low)/step+1 == count && (id-low)%step == 0 {
		l.Proc = (id - low) / step
	}
	l.Advice = "the elements of a Slurm job array do not know each other's hosts: name the host of one of them with -C HOST, or start the tasks of one job with srun"
	return l, true, nil
}

// atoi is 0 for what is no number.
func atoi(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}
