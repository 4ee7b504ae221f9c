package rendezvous

import (
	"net/netip"
	"strings"
)

// detectOpenMPI reads what mpirun of Open MPI leaves. PMIX_RANK alone is not
// enough: the environment does not say how many there are. OMPI_UNIVERSE_SIZE
// counts slots, not processes.
func detectOpenMPI(env func(string) string) (Launch, bool, error) {
	l := unknownLaunch()
	found, err := numbers(env, &l, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")
	if !found {
		return l, false, err
	}
	if id := firstOf(env, "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"); id != "" {
		l.JobKey = "ompi " + id
		l.Port = derivedPort(l.JobKey)
	}
	meetInMPI(env, &l)
	if l.Controller == "" {
		if host := mpirunHost(env); host != "" {
			l.Controller, l.ControllerFrom = host, "the host of mpirun"
		}
	}
	if l.Controller == "" {
		l.Advice = adviceMPI
	}
	return l, true, nil
}

const adviceMPI = "mpirun does not say on which host process 0 runs: name the first host with -C HOST"

// detectPMI reads what Hydra (MPICH, Intel MPI) and others leave. srun with
// --mpi=pmi2 does the same for a step of its own, about which Slurm says more.
func detectPMI(env func(string) string) (Launch, bool, error) {
	l := unknownLaunch()
	hydra := firstOf(env, "MPI_LOCALRANKID", "HYDI_CONTROL_FD") != ""
	if !hydra && env("PMI_RANK") != "" && env("PMI_RANK") == env("SLURM_PROCID") && env("PMI_SIZE") == env("SLURM_STEP_NUM_TASKS") {
		return l, false, nil
	}
	local, size := "MPI_LOCALRANKID", "MPI_LOCALNRANKS"
	if env(local) == "" {
		local, size = "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"
	}
	found, err := numbers(env, &l, "PMI_RANK", "PMI_SIZE", local, size)
	if !found {
		if err == nil && env("PMI_PORT") != "" && env("PMI_ID") != "" {
			l.Advice = "mpiexec -pmi-port does not say how many processes there are: leave -pmi-port out"
		}
		return l, false, err
	}
	if id := env("PALS_APID"); id != "" {
		l.JobKey = "pals " + id
		l.Port = derivedPort(l.JobKey)
	} else if job := slurmJob(env); job != "" {
		// Hydra has no name for its job. This port at least keeps the jobs of two allocations apart.
		l.Port = derivedPort("hydra " + job)
	}
	meetInMPI(env, &l)
	if l.Controller == "" {
		l.Advice = adviceMPI
	}
	return l, true, nil
}

// meetInMPI finds the controller's host for a launcher that does not list its
// hosts: this one if all processes are here, else the first one of the
// allocation, where such launchers place process 0 unless told otherwise.
func meetInMPI(env func(string) string, l *Launch) {
	if l.LocalSize == l.Procs {
		l.Controller, l.ControllerFrom = "127.0.0.1", "all processes are on this host"
		return
	}
	// SLURM_NODELIST is no use: where srun started the launcher's daemons it lists their hosts, without the first.
	if hosts, err := expandHostList(env("SLURM_JOB_NODELIST")); err == nil {
		l.Controller, l.ControllerFrom = hosts[0], "the first host of SLURM_JOB_NODELIST"
		return
	}
	if host := lsfHost(env); host != "" {
		l.Controller, l.ControllerFrom = host, "the first compute host of LSB_MCPU_HOSTS"
	}
}

// lsfHost is the first host of "batch1 1 a01 42 a02 42" that is not where the
// script runs.
func lsfHost(env func(string) string) string {
	words := strings.Fields(env("LSB_MCPU_HOSTS"))
	for i := 0; i+1 < len(words); i += 2 {
		if !strings.HasPrefix(words[i], "batch") && !strings.HasPrefix(words[i], "login") {
			return words[i]
		}
	}
	return ""
}

// mpirunHost is where mpirun itself runs: one of the job's hosts unless it was
// started elsewhere, which shows when nobody takes the controller's port.
// Open MPI 4 gives an address, 5 the host's name.
func mpirunHost(env func(string) string) string {
	for part := range strings.SplitSeq(env("OMPI_MCA_orte_hnp_uri"), ";") {
		addrs, ok := strings.CutPrefix(part, "tcp://")
		if !ok {
			continue
		}
		addrs = addrs[:max(strings.LastIndexByte(addrs, ':'), 0)]
		for text := range strings.SplitSeq(addrs, ",") {
			if a, err := netip.ParseAddr(text); err == nil && !everyHostHas(a) {
				return a.String()
			}
		}
	}
	// prterun-HOST-PID@1
	name, _, ok := strings.Cut(env("PMIX_NAMESPACE"), "@")
	name, prterun := strings.CutPrefix(name, "prterun-")
	if dash := strings.LastIndexByte(name, '-'); ok && prterun && dash > 0 {
		return name[:dash]
	}
	return ""
}

// everyHostHas says that an address names another machine on every host:
// loopback, and the bridges that container and virtual machine software makes
// by default.
func everyHostHas(a netip.Addr) bool {
	switch a.String() {
	case "172.17.0.1", "192.168.122.1":
		return true
	}
	return a.IsLoopback() || a.IsUnspecified()
}
