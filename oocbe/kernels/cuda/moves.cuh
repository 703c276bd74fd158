// Move plans as kernel arguments, by value. Needs integers.cuh.

#define MOST_MOVES 64

// One move: bits [shift, shift + bits) of source word `from` move to bit `back` of word `to`.
struct Move { unsigned char from, shift, bits, to, back, unused[3]; };

// Moves ordered by `to`, then `from`.
struct Plan { Move moves[MOST_MOVES]; };

// Masks of the words of a key.
#define MOST_WORDS 64
struct Masks { u64 words[MOST_WORDS]; };

__device__ __forceinline__ u64 moved(u64 source, Move step) {
    return ((source >> step.shift) & (~0ull >> (64 - step.bits))) << step.back;
}

// The one word of a row's key after a plan; keys u64 (words, rows).
__device__ __forceinline__ u64 moved_word(const u64 *keys, i64 rows, i64 row, const Plan &plan, int moves) {
    u64 result = 0;
    for (int move = 0; move < moves; move++) result |= moved(keys[plan.moves[move].from * rows + row], plan.moves[move]);
    return result;
}
