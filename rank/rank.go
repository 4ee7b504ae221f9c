package rank

// Rank numbers one rank of a job, 0 … size-1.
type Rank int32

// Proc numbers one process of a job, 0 … procs-1. A process hosts K ranks:
// rank = proc*K + i with i in 0 … K-1.
type Proc int32

// None marks "no rank" and NoProc "no process" where a field is optional.
const (
	None   Rank = -1
	NoProc Proc = -1
)
