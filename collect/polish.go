package collect

import (
	"math"
	"slices"
)

// cell is one edge of the matrix initiator × target.
type cell struct {
	row, col int
	value    float64 // log of its mean full connect, less the median of its class
}

// polished is a matrix taken apart: value = row + col + residual. Rows and
// columns without an effect of their own have 0.
type polished struct {
	rows, cols, residuals []float64
}

const (
	polishRounds = 10 // it settles within a few
	polishCells  = 3  // a line with fewer cells is told by its cells
	polishDone   = 1e-6
)

// medianPolish takes a sparse matrix apart by sweeping out medians of rows and
// columns in turn (Tukey). A row needs three cells for an effect, or one if there
// is one column only, and so the columns.
func medianPolish(cells []cell, rows, cols int) polished {
	p := polished{rows: make([]float64, rows), cols: make([]float64, cols), residuals: make([]float64, len(cells))}
	byRow, byCol := make([][]int, rows), make([][]int, cols)
	for i, c := range cells {
		p.residuals[i] = c.value
		byRow[c.row] = append(byRow[c.row], i)
		byCol[c.col] = append(byCol[c.col], i)
	}
	sweep := func(lines [][]int, effects []float64, single bool) (moved float64) {
		for k, line := range lines {
			if len(line) < polishCells && !single {
				continue
			}
			m := median(line, func(i int) float64 { return p.residuals[i] })
			effects[k] += m
			moved = max(moved, math.Abs(m))
			for _, i := range line {
				p.residuals[i] -= m
			}
		}
		return moved
	}
	for range polishRounds {
		moved := 0.0
		if rows > 1 {
			moved = sweep(byRow, p.rows, cols == 1)
		}
		if cols > 1 {
			moved = max(moved, sweep(byCol, p.cols, rows == 1))
		}
		if moved < polishDone {
			break
		}
	}
	return p
}

// median of what of says of a list; of an even one the mean of the two in the middle.
func median[T any](list []T, of func(T) float64) float64 {
	values := make([]float64, len(list))
	for i, v := range list {
		values[i] = of(v)
	}
	slices.Sort(values)
	n := len(values)
	if n == 0 {
		return 0
	}
	return (values[(n-1)/2] + values[n/2]) / 2
}

// robust are the median and the median absolute deviation of values, the
// deviation at least floor.
func robust(values []float64, floor float64) (mid, mad float64) {
	self := func(v float64) float64 { return v }
	mid = median(values, self)
	return mid, max(floor, median(values, func(v float64) float64 { return math.Abs(v - mid) }))
}
