package sim

// ring is a queue that keeps its memory: it allocates only to hold more than
// it ever held.
type ring[T any] struct {
	buf     []T // length is a power of two
	head, n int
}

func (r *ring[T]) len() int { return r.n }

func (r *ring[T]) grow(n int) {
	if n <= len(r.buf) {
		return
	}
	size := max(16, len(r.buf))
	for size < n {
		size *= 2
	}
	buf := make([]T, size)
	for i := range r.n {
		buf[i] = r.buf[(r.head+i)&(len(r.buf)-1)]
	}
	r.buf, r.head = buf, 0
}

func (r *ring[T]) push(v T) {
	r.grow(r.n + 1)
	r.buf[(r.head+r.n)&(len(r.buf)-1)] = v
	r.n++
}

// front points at the oldest element; the ring must not be empty.
func (r *ring[T]) front() *T { return &r.buf[r.head] }

func (r *ring[T]) pop() T {
	v := r.buf[r.head]
	var zero T
	r.buf[r.head] = zero
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	return v
}

func (r *ring[T]) clear() {
	for r.n > 0 {
		r.pop()
	}
}
