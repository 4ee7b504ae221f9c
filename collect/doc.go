// Package collect turns stamps into figures: it records begin and end of every
// step of every connection, reduces them to exact moments and a sparse
// histogram, merges the summaries of many processes, and makes the result
// document, the table and the cause lines from them.
//
// The way of a sample: [Stamps] (hot path) → [ReduceStep] (one rank, one step)
// → [Summary] (one slot, one process) → [Merge] (up the control tree) →
// [Document.AddSlot] (root) → [Document.Encode], [WriteTable], [Diagnose].
//
// The package is pure: it reads no clock and opens nothing. Times are int64 ns;
// those of a summary are on the root's clock, those of a document count from
// the start of the run. It is the only package that imports HdrHistogram.
package collect
