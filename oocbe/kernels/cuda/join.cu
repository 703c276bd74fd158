// Join sum by gather (Bistaffa, Bombieri and Farinelli 2016, algorithm 4): a thread makes the output rows of its pairs.
// Rows of a group are read again and again by one block, from the first-level cache.
// variants: VALUE=int|long long|float|double COMBINATION=0|1
#define MARGINALISATION 0
#include "integers.cuh"
#include "values.cuh"
#include "pairs.cuh"

// keys1 u64 (words1, rows1), keys2 u64 (words, rows2), words1 <= words; the groups as in pairs.cuh. out_keys u64 (words,
// rows), out_values (rows,), in the order of the pairs.
extern "C" __global__ void __launch_bounds__(PAIR_THREADS)
join_rows(const u64 *keys1, const VALUE *values1, i64 rows1, i64 words1, const u64 *keys2, const VALUE *values2,
          i64 rows2, const i64 *starts1, const i64 *counts1, const i64 *starts2, const i64 *places, const i64 *tiles,
          i64 words, u64 *out_keys, VALUE *out_values, i64 rows) {
    __shared__ PairGroups held;
    find_groups(held, places, tiles, starts1, counts1, starts2);
    i64 start = (i64)blockIdx.x * PAIRS;
    #pragma unroll 4
    for (int i = 0; i < PAIRS_A_THREAD; i++) {
        u32 t = threadIdx.x + i * PAIR_THREADS;
        i64 row = start + t;
        if (row >= rows) break;
        Pair pair = pair_of(held, t, starts1, counts1, starts2);
        out_values[row] = combine(values1[pair.row1], values2[pair.row2]);
        for (int word = 0; word < words; word++) {
            u64 key = keys2[word * rows2 + pair.row2];
            if (word < words1) key |= keys1[word * rows1 + pair.row1];
            out_keys[word * rows + row] = key;
        }
    }
}
