// Tables as runs: rows that agree on all but the eliminated variables, which are neighbours, become one entry with a set
// of eliminated values. What join_reduce.cu joins are runs of two tables.
// variants: SET_BITS=32|64
#include "integers.cuh"
#include "moves.cuh"

#define THREADS 256

#if SET_BITS == 32
typedef u32 SET;
#else
typedef u64 SET;
#endif

// First marked row after `row`, or `rows`.
__device__ __forceinline__ i64 next_marked(const u32 *bits, i64 row, i64 rows) {
    i64 word = row >> 5, words = (rows + 31) / 32;
    u32 left = (u32)((u64)bits[word] >> ((row & 31) + 1));
    if (left) return row + __ffs(left);
    while (++word < words)
        if (bits[word]) return word * 32 + __ffs(bits[word]) - 1;
    return rows;
}

// bits, before: the first row of each run. starts i64 (runs + 1,), sets SET (runs,) a bit an eliminated value, run_keys
// u64 (words, runs) after the moves of a plan; a plan of more moves than fit comes in several launches, of which all but
// the first add. unsorted u32 (1,): set where eliminated values do not ascend within a run.
extern "C" __global__ void __launch_bounds__(THREADS)
write_runs(const u64 *keys, i64 rows, const u32 *bits, const i64 *before, i64 runs, Plan eliminated,
           i64 eliminated_moves, Plan plan, i64 moves, i64 add, i64 words, i64 *starts, SET *sets, u64 *run_keys,
           u32 *unsorted) {
    i64 row = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (row == 0) starts[runs] = rows;
    if (row >= rows || !(bits[row >> 5] >> (row & 31) & 1)) return;
    i64 run = marked_before(bits, before, row, rows), stop = next_marked(bits, row, rows);
    int move = 0;
    for (int word = 0; word < words; word++) {
        u64 result = add ? run_keys[word * runs + run] : 0;
        for (; move < moves && plan.moves[move].to == word; move++)
            result |= moved(keys[plan.moves[move].from * rows + row], plan.moves[move]);
        run_keys[word * runs + run] = result;
    }
    if (add) return;
    starts[run] = row;
    if (!sets) return;
    SET set = 0;
    for (i64 at = row; at < stop; at++) {
        SET one = (SET)1 << moved_word(keys, rows, at, eliminated, eliminated_moves);
        if (set >= one) *unsorted = 1;
        set |= one;
    }
    sets[run] = set;
}

// Eliminated value and run of each row: out u64 (2, rows).
extern "C" __global__ void __launch_bounds__(THREADS)
read_eliminated(const u64 *keys, i64 rows, const u32 *bits, const i64 *before, Plan eliminated, i64 moves, u64 *out,
                u32 *unsorted) {
    i64 row = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (row >= rows) return;
    bool head = bits[row >> 5] >> (row & 31) & 1;
    out[row] = moved_word(keys, rows, row, eliminated, moves);
    out[rows + row] = marked_before(bits, before, row, rows) - !head;
    if (!head && moved_word(keys, rows, row - 1, eliminated, moves) >= out[row]) *unsorted = 1;
}

// Groups of rows, which begin and end with runs, as groups of runs.
extern "C" __global__ void __launch_bounds__(THREADS)
count_runs(const i64 *row_starts, const i64 *row_counts, i64 groups, const u32 *bits, const i64 *before, i64 rows,
           i64 *run_starts, i64 *run_counts) {
    i64 group = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (group >= groups) return;
    i64 first = marked_before(bits, before, row_starts[group], rows);
    run_starts[group] = first;
    run_counts[group] = marked_before(bits, before, row_starts[group] + row_counts[group], rows) - first;
}
