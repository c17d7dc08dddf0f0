#pragma once

// Rows of chunks, each of which a team walks through with sums at hand, read ahead of their use. A row may take a GPU's
// memory a thousand cycles to bring, and a block that asks for the next one only when it is done with this one waits so
// long for each: reads under way have to be 40 KiB for each multiprocessor of an H100, all the time.
//
//   with_packs<T>(n, aligned, [&](auto packs) { … });
//                        calls it with packs(), as a constant: how many pieces of 16 bytes of a row of n numbers T each
//                        worker has, so that sums of so many stand in registers; on the CPU 1. aligned: aligned_rows of
//                        all rows that stand in a loop with these
//   parallel_rows_ahead<T, count, packs, sums>(stream, chunks, n, [=] FORGE_LAMBDA(int64_t chunk, Team team) { … });
//                        as parallel_rows, of teams that read `count` rows of n numbers T at a time ahead, with so many
//                        rows of sums (team.sums)
//   const auto ahead = rows_ahead<T, count, packs>(team, n, begin, end, line);
//                        line(r) is the Array of the `count` rows at r, where null ones aren't read; all of [begin,
//                        end) in this order
//   ahead.at(r)          these rows, for calls of the team, before the next at()
//   row_beside<packs>(team, n, p)
//                        the row at p for loops with these, in registers where there is room: weights
//
// A row at r may be written once at(r) is there, no row behind it.

#if !defined(FORGE_CUDA)
#include "device/rows_ahead_host.hpp"
#elif defined(__CUDACC__)
#include "device/rows_ahead_cuda.hpp"
#endif
