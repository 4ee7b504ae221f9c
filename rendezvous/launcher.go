package rendezvous

import (
	"strconv"

	"rankstorm/rank"
)

// Launch is what the environment says about this process's place in the job.
type Launch struct {
	Family     string // whose variables they were; "" if nothing was found
	Proc       int    // process number, -1 unknown
	Procs      int    // processes of the job, 0 unknown
	LocalIndex int    // index within the host, -1 unknown
	LocalSize  int    // processes on the host, 0 unknown
	JobKey     string // "" unknown
	Controller string // host or host:port, "" unknown
}

// family is one launcher's set of variables.
type family struct {
	name string
	// detect reads the variables; found says that the family is complete enough to be believed. An error is a
	// family that contradicts itself.
	detect func(env func(string) string) (l Launch, found bool, err error)
}

// families in the order of trust: the first that is found wins, the others are
// outer launchers (mpirun inside salloc is normal).
var families = []family{
	{"rankstorm", detectOwn},
}

// Detect reads the environment through env (os.Getenv). Nothing found is no
// error. The error is a *rank.Error of KindUsage: the winning family says
// something impossible.
func Detect(env func(string) string) (Launch, error) {
	for _, f := range families {
		l, found, err := f.detect(env)
		if err != nil {
			return Launch{}, err
		}
		if found {
			l.Family = f.name
			return l, nil
		}
	}
	return unknownLaunch(), nil
}

func unknownLaunch() Launch { return Launch{Proc: -1, LocalIndex: -1} }

// Own variables: any of them is enough, flags may say the rest.
const (
	envRank       = "RANKSTORM_RANK"
	envProcs      = "RANKSTORM_PROCS"
	envJob        = "RANKSTORM_JOB"
	envController = "RANKSTORM_CONTROLLER"
)

func detectOwn(env func(string) string) (Launch, bool, error) {
	l := unknownLaunch()
	l.JobKey, l.Controller = env(envJob), env(envController)
	found := l.JobKey != "" || l.Controller != ""
	var err error
	if v := env(envRank); v != "" {
		found = true
		if l.Proc, err = envNumber(envRank, v, 0); err != nil {
			return l, false, err
		}
	}
	if v := env(envProcs); v != "" {
		found = true
		if l.Procs, err = envNumber(envProcs, v, 1); err != nil {
			return l, false, err
		}
	}
	return l, found, checkNumbers(l, envRank, envProcs)
}

// envNumber parses the value of a variable, a whole number of at least low.
func envNumber(name, value string, low int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < low || n > 1<<30 {
		return 0, rank.Errorf(rank.KindUsage, "%s=%s: give a whole number of at least %d, or unset it", name, value, low)
	}
	return n, nil
}

// checkNumbers refuses a number outside the count; rankVar and procsVar are
// named in the message.
func checkNumbers(l Launch, rankVar, procsVar string) error {
	if l.Proc >= 0 && l.Procs > 0 && l.Proc >= l.Procs {
		return rank.Errorf(rank.KindUsage, "%s=%d is outside 0 … %d given by %s=%d: correct one of them", rankVar, l.Proc, l.Procs-1, procsVar, l.Procs)
	}
	return nil
}
