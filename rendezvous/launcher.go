package rendezvous

import (
	"hash/fnv"
	"strconv"

	"rankstorm/rank"
)

// Launch is what the environment says about this process's place in the job.
type Launch struct {
	Family     string // whose variables they were; "" if no family was complete
	Proc       int    // process number, -1 unknown
	Procs      int    // processes of the job, 0 unknown
	Launched   int    // processes that the launcher started, 0 unknown
	LocalIndex int    // index within the host, -1 unknown
	LocalSize  int    // processes on the host, 0 unknown
	JobKey     string // "" unknown
	Controller string // host or host:port, "" unknown
	// ControllerFrom says where Controller was read, for messages: "the first host of SLURM_STEP_NODELIST".
	ControllerFrom string
	// Port of the controller where neither the user nor Controller names one; 0: no better one than the default.
	Port int
	// Hosts of the job as the launcher lists them, nil unknown. Names are the launcher's.
	Hosts []LaunchHost
	// Advice is what the user should do about what the launcher did not say, one line without a full stop; "" if
	// nothing is missing.
	Advice string
	// Ignored are other families whose variables were complete too: outer launchers (mpirun inside salloc).
	Ignored []string
}

// LaunchHost is one host of the job as its launcher knows it.
type LaunchHost struct {
	Name  string
	Procs int // processes on it, 0 unknown
}

// family is one launcher's set of variables.
type family struct {
	name string
	// detect reads the variables; found says that the family is complete enough to be believed. A family that is not
	// may leave advice. An error is a family that contradicts itself.
	detect func(env func(string) string) (l Launch, found bool, err error)
}

// families in the order of trust: the first complete one wins, the others are
// outer launchers (mpirun inside salloc is normal). Flags and the variables
// that stand for them are above all of these; pdsh leaves no variables.
var families = []family{
	{"Open MPI", detectOpenMPI},
	{"PMI", detectPMI},
	{"Flux", detectFlux},
	{"PALS", detectPALS},
	{"JSM", detectJSM},
	{"Slurm", detectSlurm},
	{"RANK/WORLD_SIZE", detectTorch},
	{"Kubernetes", detectKubernetes},
	{"Slurm array", detectSlurmArray},
}

// Detect reads the environment through env (os.Getenv). Nothing found is no
// error. The error is a *rank.Error of KindUsage: the winning family says
// something impossible.
func Detect(env func(string) string) (Launch, error) {
	won := unknownLaunch()
	advice := ""
	for _, f := range families {
		l, found, err := f.detect(env)
		switch {
		case won.Family != "":
			if found || err != nil {
				won.Ignored = append(won.Ignored, f.name)
			}
		case err != nil:
			return Launch{}, err
		case found:
			won = l
			won.Family, won.Launched = f.name, l.Procs
		case advice == "":
			advice = l.Advice
		}
	}
	if won.Family == "" {
		won.Advice = advice
	}
	return won, nil
}

func unknownLaunch() Launch { return Launch{Proc: -1, LocalIndex: -1} }

// Controller ports that are derived from a launcher's job lie in
// firstDerivedPort … firstDerivedPort+derivedPorts-1: below the kernel's local
// ports (32768 on), so that no connection takes them by chance.
const (
	firstDerivedPort = 18432
	derivedPorts     = 8192
)

// derivedPort spreads jobs that know their name over the derived ports.
func derivedPort(key string) int {
	h := fnv.New32a()
	h.Write([]byte(key))
	return firstDerivedPort + int(h.Sum32()%derivedPorts)
}

// numbers reads the process number and count of a family, and, where the names
// are not "", the index on the host and the processes there. found is false if
// one of the first two is not set; what is set but impossible is an error.
func numbers(env func(string) string, l *Launch, procVar, procsVar, localVar, localSizeVar string) (found bool, err error) {
	if env(procVar) == "" || env(procsVar) == "" {
		return false, nil
	}
	if l.Proc, err = envNumber(procVar, env(procVar), 0); err != nil {
		return false, err
	}
	if l.Procs, err = envNumber(procsVar, env(procsVar), 1); err != nil {
		return false, err
	}
	if l.Proc >= l.Procs {
		return false, contradiction(procVar, env(procVar), procsVar, env(procsVar))
	}
	if localVar != "" && env(localVar) != "" {
		if l.LocalIndex, err = envNumber(localVar, env(localVar), 0); err != nil {
			return false, err
		}
	}
	if localSizeVar != "" && env(localSizeVar) != "" {
		if l.LocalSize, err = envNumber(localSizeVar, env(localSizeVar), 1); err != nil {
			return false, err
		}
		switch {
		case l.LocalIndex >= l.LocalSize:
			return false, contradiction(localVar, env(localVar), localSizeVar, env(localSizeVar))
		case l.LocalSize > l.Procs:
			return false, contradiction(localSizeVar, env(localSizeVar), procsVar, env(procsVar))
		}
	}
	return true, nil
}

// contradiction of two variables of one family.
func contradiction(a, valueA, b, valueB string) error {
	return rank.Errorf(rank.KindUsage, "the environment contradicts itself: %s=%s does not fit %s=%s; unset them, or say it with --rank, -P and -C",
		a, quote(valueA), b, quote(valueB))
}

// envNumber parses the value of a variable, a whole number of at least low.
func envNumber(name, value string, low int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < low || n > 1<<30 {
		return 0, rank.Errorf(rank.KindUsage, "%s=%s: it should be a whole number of at least %d; unset it, or say it with --rank, -P and -C", name, quote(value), low)
	}
	return n, nil
}

// first of the variables that is set.
func firstOf(env func(string) string, names ...string) string {
	for _, n := range names {
		if v := env(n); v != "" {
			return v
		}
	}
	return ""
}
