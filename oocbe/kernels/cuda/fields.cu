// Move fields of keys to other places.
#include "integers.cuh"

#define MOST_MOVES 64
#define ROWS_A_THREAD 4

// One move: bits [shift, shift + bits) of source word `from` go to `back` of word `to`. Moves are ordered by `to`.
struct Move { unsigned char from, shift, bits, to, back, unused[3]; };
struct Plan { Move moves[MOST_MOVES]; };

// keys u64 (source words, rows), out u64 (words, rows). A plan of more moves than fit comes in several launches, of
// which all but the first add to what is there. A thread reads ROWS_A_THREAD rows at once, to have loads in flight.
extern "C" __global__ void __launch_bounds__(256)
permute_rows(const u64 *keys, u64 *out, i64 rows, i64 words, Plan plan, i64 moves, i64 add) {
    i64 first = (i64)blockIdx.x * (256 * ROWS_A_THREAD) + threadIdx.x;
    int move = 0;
    for (int word = 0; word < words; word++) {
        u64 result[ROWS_A_THREAD], source[ROWS_A_THREAD];
        int held = -1;
        #pragma unroll
        for (int i = 0; i < ROWS_A_THREAD; i++) {
            i64 row = first + i * 256;
            result[i] = add && row < rows ? out[word * rows + row] : 0;
            source[i] = 0;
        }
        for (; move < moves && plan.moves[move].to == word; move++) {
            Move step = plan.moves[move];
            if (step.from != held) {
                held = step.from;
                #pragma unroll
                for (int i = 0; i < ROWS_A_THREAD; i++) {
                    i64 row = first + i * 256;
                    if (row < rows) source[i] = keys[held * rows + row];
                }
            }
            u64 mask = ~0ull >> (64 - step.bits);
            #pragma unroll
            for (int i = 0; i < ROWS_A_THREAD; i++) result[i] |= ((source[i] >> step.shift) & mask) << step.back;
        }
        #pragma unroll
        for (int i = 0; i < ROWS_A_THREAD; i++) {
            i64 row = first + i * 256;
            if (row < rows) out[word * rows + row] = result[i];
        }
    }
}
