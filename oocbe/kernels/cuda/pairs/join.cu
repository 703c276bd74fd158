// Join sum by gather (Bistaffa, Bombieri and Farinelli 2016, algorithm 4): a thread writes the output rows of its
// pairs. Rows of a group are read repeatedly by one block, from the first-level cache.
// variants: VALUE=int|long long|float|double COMBINATION=0|1
#define MARGINALISATION 0
#include "integers.cuh"
#include "values.cuh"
#define STAGED 384
#include "pairs.cuh"

// keys1 u64 (words1, rows1), keys2 u64 (words, rows2), words1 <= words; the groups as in pairs.cuh. out_keys u64 (words,
// rows), out_values (rows,), in the order of the pairs.
extern "C" __global__ void __launch_bounds__(PAIR_THREADS, 10)
join_rows(const u64 *keys1, const VALUE *values1, i64 rows1, i64 words1, const u64 *keys2, const VALUE *values2,
          i64 rows2, const i64 *starts1, const i64 *counts1, const i64 *starts2, const i64 *places, const i64 *tiles,
          i64 words, u64 *out_keys, VALUE *out_values, i64 rows) {
    __shared__ PairGroups held;
    find_groups(held, places, tiles, starts1, counts1, starts2);
    i64 start = (i64)blockIdx.x * PAIRS;
    // AT_ONCE pairs together, without branches in between, so that their loads are in flight at the same time.
    for (int first = 0; first < PAIRS_A_THREAD; first += AT_ONCE) {
        Pair pairs[AT_ONCE];
        bool inside[AT_ONCE];
        #pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            u32 t = threadIdx.x + (first + i) * PAIR_THREADS;
            inside[i] = start + t < rows;
            pairs[i] = pair_of(held, inside[i] ? t : 0, starts1, counts1, starts2);
        }
        VALUE a[AT_ONCE], b[AT_ONCE];
        #pragma unroll
        for (int i = 0; i < AT_ONCE; i++) a[i] = values1[pairs[i].row1], b[i] = values2[pairs[i].row2];
        for (int word = 0; word < words; word++) {
            u64 keys[AT_ONCE];
            #pragma unroll
            for (int i = 0; i < AT_ONCE; i++) {
                keys[i] = keys2[word * rows2 + pairs[i].row2];
                if (word < words1) keys[i] |= keys1[word * rows1 + pairs[i].row1];
            }
            #pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                if (inside[i]) out_keys[word * rows + start + threadIdx.x + (first + i) * PAIR_THREADS] = keys[i];
        }
        #pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (inside[i]) out_values[start + threadIdx.x + (first + i) * PAIR_THREADS] = combine(a[i], b[i]);
    }
}
