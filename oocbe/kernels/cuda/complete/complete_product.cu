// Join two sides of complete functions and marginalise their shared axes, as a matrix product over the semiring: a
// block computes a tile of the result from slices of both sides in shared memory, a thread a part of it in registers
// (Bistaffa, Bombieri and Farinelli 2016, CUBE; the tiles are those of dense linear algebra). The functions of a side
// are combined as they are read. 16-bit integers are added and compared two at a time.
// variants: VALUE=short|int|long long|float|double VALUE_BITS=16|32|64|32|64 VALUE_FLOATS=0|0|0|1|1
// variants: COMBINATION=0|1 MARGINALISATION=0|1|2 LEFTS=1|2|3|4 RIGHTS=1|2|3|4
// variants: SLICE=8|7|5|2 TILE_ROWS=128|64 TILE_COLUMNS=128|64 LEFT_ALONG=1|0 RIGHT_ALONG=0|1
#include "integers.cuh"
#include "values.cuh"
#include "complete.cuh"

// PACKED: a word holds two adjacent columns of the result; a left value is in both halves.
#define PACKED (VALUE_BITS == 16 && COMBINATION == 0 && MARGINALISATION < 2)
#if PACKED
typedef u32 Word;
#define TOGETHER 2
#elif VALUE_BITS == 16
typedef int Word;
#define TOGETHER 1
#else
typedef VALUE Word;
#define TOGETHER 1
#endif
// Rows and words of a thread, held in registers.
#define ROWS 8
#define WORDS (VALUE_BITS == 64 ? 4 : 8)
#define TILE_WORDS (TILE_COLUMNS / TOGETHER)
#define ROW_THREADS (TILE_ROWS / ROWS)
#define COLUMN_THREADS (TILE_WORDS / WORDS)
#define THREADS (ROW_THREADS * COLUMN_THREADS)
// Words of one load from shared memory.
#define LOAD (16 / (int)sizeof(Word))
struct __align__(16) Load { Word words[LOAD]; };
union Line { int4 all; VALUE values[LOAD * TOGETHER]; Word words[LOAD]; };

struct Sides { const VALUE *left[LEFTS]; const VALUE *right[RIGHTS]; };

// The plan, i64 entries: this head; then for batch axes (both sides and the result), row axes (left side, result), column
// axes (right side, result) and shared axes (both sides): sizes, then strides of each function and of the result.
struct Head { i64 axes[4], cells[4]; };
enum { BATCH, ROW, COLUMN, SHARED };

// Offsets of one cell of some axes for `count` functions, at plan: sizes, then strides.
template <int count>
__device__ __forceinline__ void locate(const i64 *plan, i64 axes, u64 cell, i64 *offsets) {
    #pragma unroll
    for (int f = 0; f < count; f++) offsets[f] = 0;
    #pragma unroll 1
    for (int axis = 0; axis < axes; axis++) {
        u64 size = plan[axis], digit;
        if (axis == axes - 1) digit = cell;
        else if (cell >> 32) digit = cell % size, cell /= size;
        else digit = (u32)cell % (u32)size, cell = (u32)cell / (u32)size;
        #pragma unroll
        for (int f = 0; f < count; f++) offsets[f] += digit * plan[(f + 1) * axes + axis];
    }
}

__device__ __forceinline__ Word widened(VALUE value) {
#if PACKED
    return (u32)(unsigned short)value * 0x10001u;
#else
    return (Word)value;
#endif
}

#if PACKED
// clamped() of both halves.
__device__ __forceinline__ Word clamped_pair(Word pair, VALUE infeasible, VALUE limit) {
    Word bound = widened(MARGINALISATION == 0 ? limit : (VALUE)-limit);
    Word beyond = MARGINALISATION == 0 ? __vcmpgts2(pair, bound) : __vcmplts2(pair, bound);
    return (pair & ~beyond) | (widened(infeasible) & beyond);
}
#endif

// found ⊕ (a ⊗ b)
__device__ __forceinline__ Word step(Word found, Word a, Word b) {
#if PACKED && MARGINALISATION == 0
    return __viaddmin_s16x2(a, b, found);
#elif PACKED
    return __viaddmax_s16x2(a, b, found);
#elif VALUE_BITS == 32 && !VALUE_FLOATS && COMBINATION == 0 && MARGINALISATION == 0
    return __viaddmin_s32(a, b, found);
#elif VALUE_BITS == 32 && !VALUE_FLOATS && COMBINATION == 0 && MARGINALISATION == 1
    return __viaddmax_s32(a, b, found);
#elif VALUE_BITS == 16 && COMBINATION == 0
    return found + (a + b);
#elif VALUE_BITS == 16
    Word joined = a * b;
    return MARGINALISATION == 2 ? found + joined : MARGINALISATION == 1 ? max(found, joined) : min(found, joined);
#elif VALUE_FLOATS && VALUE_BITS == 32 && MARGINALISATION < 2
    // Compiles to the minimum or maximum instruction, unlike the comparison in marginalise().
    return MARGINALISATION == 0 ? fminf(found, combine(a, b)) : fmaxf(found, combine(a, b));
#else
    return marginalise(found, combine(a, b));
#endif
}

// Maximum batch cells of a block, and shared cells in total: their offsets are computed in advance.
#define MOST_BATCHES 32
#define MOST_SHARED 512
#define LEFT_VALUES ((TILE_ROWS * SLICE + THREADS - 1) / THREADS)
#define RIGHT_VALUES ((TILE_COLUMNS * SLICE + THREADS - 1) / THREADS)

// Double-buffered slices: one is used while the other is filled.
struct Slices {
    Word left[2][SLICE][TILE_ROWS + LOAD];
    Word right[2][SLICE][TILE_WORDS + LOAD];
};

struct Places {
    i64 result_rows[TILE_ROWS], result_columns[TILE_COLUMNS], bases[MOST_BATCHES][LEFTS + RIGHTS + 1];
    u32 rows[LEFTS][TILE_ROWS], columns[RIGHTS][TILE_COLUMNS], shared[LEFTS + RIGHTS][MOST_SHARED];
};

// Shared cell of a slice, and row or column, of a thread's i-th value: along the shared axis first if that axis is
// contiguous in memory.
__device__ __forceinline__ void own_value(int i, bool along, u32 tile, u32 &k, u32 &at) {
    u32 number = threadIdx.x + i * THREADS;
    k = along ? number % SLICE : number / tile;
    at = along ? number / SLICE : number % tile;
}

__device__ __forceinline__ void read_slice(const Sides &sides, const Places &places, u32 batch, u32 begin, u32 count,
                                           VALUE absent, VALUE infeasible, VALUE limit, VALUE (&left)[LEFT_VALUES],
                                           VALUE (&right)[RIGHT_VALUES]) {
    #pragma unroll
    for (int i = 0; i < LEFT_VALUES; i++) {
        u32 k, row;
        own_value(i, LEFT_ALONG, TILE_ROWS, k, row);
        left[i] = absent;
        if (k >= SLICE || row >= TILE_ROWS || begin + k >= count) continue;
        left[i] = __ldg(sides.left[0] + places.bases[batch][0] + (places.rows[0][row] + places.shared[0][begin + k]));
        #pragma unroll
        for (int f = 1; f < LEFTS; f++) {
            const VALUE *source = sides.left[f] + places.bases[batch][f];
            left[i] = clamped(combine(left[i], __ldg(source + (places.rows[f][row] + places.shared[f][begin + k]))),
                              infeasible, limit);
        }
    }
    #pragma unroll
    for (int i = 0; i < RIGHT_VALUES; i++) {
        u32 k, column;
        own_value(i, RIGHT_ALONG, TILE_COLUMNS, k, column);
        right[i] = 0;
        if (k >= SLICE || column >= TILE_COLUMNS || begin + k >= count) continue;
        right[i] = __ldg(sides.right[0] + places.bases[batch][LEFTS] +
                         (places.columns[0][column] + places.shared[LEFTS][begin + k]));
        #pragma unroll
        for (int f = 1; f < RIGHTS; f++) {
            const VALUE *source = sides.right[f] + places.bases[batch][LEFTS + f];
            right[i] = clamped(combine(right[i], __ldg(source + (places.columns[f][column] +
                                                                 places.shared[LEFTS + f][begin + k]))),
                               infeasible, limit);
        }
    }
}

__device__ __forceinline__ void keep_slice(Slices &slices, u32 turn, const VALUE (&left)[LEFT_VALUES],
                                           const VALUE (&right)[RIGHT_VALUES]) {
    #pragma unroll
    for (int i = 0; i < LEFT_VALUES; i++) {
        u32 k, row;
        own_value(i, LEFT_ALONG, TILE_ROWS, k, row);
        if (k < SLICE && row < TILE_ROWS) slices.left[turn][k][row] = widened(left[i]);
    }
    #pragma unroll
    for (int i = 0; i < RIGHT_VALUES; i++) {
        u32 k, column;
        own_value(i, RIGHT_ALONG, TILE_COLUMNS, k, column);
        if (k >= SLICE || column >= TILE_COLUMNS) continue;
#if PACKED
        ((VALUE *)slices.right[turn][k])[column] = right[i];
#else
        slices.right[turn][k][column] = (Word)right[i];
#endif
    }
}

__device__ __forceinline__ void write_tile(const Places &places, u32 batch, const Word (&found)[ROWS][WORDS], i64 rows,
                                           i64 columns, VALUE *out, VALUE infeasible, VALUE limit) {
    u32 row_thread = threadIdx.x / COLUMN_THREADS, column_thread = threadIdx.x % COLUMN_THREADS;
    VALUE *target = out + places.bases[batch][LEFTS + RIGHTS];
    #pragma unroll
    for (int w = 0; w < WORDS; w += LOAD) {
        u32 column = (w * COLUMN_THREADS + column_thread * LOAD) * TOGETHER;
        i64 place = places.result_columns[column];
        bool together = sizeof(VALUE) * LOAD * TOGETHER == sizeof(int4) && column + LOAD * TOGETHER <= columns &&
                        places.result_columns[column + LOAD * TOGETHER - 1] - place == LOAD * TOGETHER - 1;
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            u32 row = r / LOAD * LOAD * ROW_THREADS + row_thread * LOAD + r % LOAD;
            if (row >= rows) continue;
            Line line;
            #pragma unroll
            for (int i = 0; i < LOAD; i++) {
#if PACKED
                line.words[i] = clamped_pair(found[r][w + i], infeasible, limit);
#else
                line.values[i] = clamped((VALUE)found[r][w + i], infeasible, limit);
#endif
            }
            VALUE *line_target = target + places.result_rows[row];
            if (together && ((u64)(line_target + place) & 15) == 0) {
                // Streaming store: results are not read here, and inputs should stay cached.
                __stcs((int4 *)(line_target + place), line.all);
            } else {
                #pragma unroll
                for (int i = 0; i < LOAD * TOGETHER; i++)
                    if (column + i < columns) line_target[places.result_columns[column + i]] = line.values[i];
            }
        }
    }
}

// A block computes one tile for `batches` batch cells, one after another. blocks: parts of the batch times tiles of
// columns times tiles of rows, the last fastest. absent: a neutral value for the left side beyond the last shared cell;
// the right side's is 0. first: initial value of results.
extern "C" __global__ void __launch_bounds__(THREADS, 512 / THREADS)
multiply(Sides sides, const i64 *plan, i64 batches, VALUE *out, VALUE absent, VALUE first, VALUE infeasible,
         VALUE limit) {
    __shared__ __align__(16) Slices slices;
    __shared__ Places places;
    const Head head = *(const Head *)plan;
    const i64 *batch_plan = plan + sizeof(Head) / sizeof(i64);
    const i64 *row_plan = batch_plan + (LEFTS + RIGHTS + 2) * head.axes[BATCH];
    const i64 *column_plan = row_plan + (LEFTS + 2) * head.axes[ROW];
    const i64 *shared_plan = column_plan + (RIGHTS + 2) * head.axes[COLUMN];

    u32 thread = threadIdx.x;
    i64 row_tiles = (head.cells[ROW] + TILE_ROWS - 1) / TILE_ROWS;
    i64 column_tiles = (head.cells[COLUMN] + TILE_COLUMNS - 1) / TILE_COLUMNS;
    i64 block = blockIdx.x, first_row = block % row_tiles * TILE_ROWS;
    block /= row_tiles;
    i64 first_column = block % column_tiles * TILE_COLUMNS;
    i64 first_batch = block / column_tiles * batches;
    u32 here = (u32)(head.cells[BATCH] - first_batch < batches ? head.cells[BATCH] - first_batch : batches);
    u32 shared = (u32)head.cells[SHARED];
    // Rows and columns beyond the last one repeat it, and are not written.
    for (u32 i = thread; i < TILE_ROWS; i += THREADS) {
        i64 row = first_row + i, offsets[LEFTS + 1];
        locate<LEFTS + 1>(row_plan, head.axes[ROW], row < head.cells[ROW] ? row : head.cells[ROW] - 1, offsets);
        #pragma unroll
        for (int f = 0; f < LEFTS; f++) places.rows[f][i] = (u32)offsets[f];
        places.result_rows[i] = offsets[LEFTS];
    }
    for (u32 i = thread; i < TILE_COLUMNS; i += THREADS) {
        i64 column = first_column + i, offsets[RIGHTS + 1];
        locate<RIGHTS + 1>(column_plan, head.axes[COLUMN],
                           column < head.cells[COLUMN] ? column : head.cells[COLUMN] - 1, offsets);
        #pragma unroll
        for (int f = 0; f < RIGHTS; f++) places.columns[f][i] = (u32)offsets[f];
        places.result_columns[i] = offsets[RIGHTS];
    }
    for (u32 i = thread; i < shared; i += THREADS) {
        i64 offsets[LEFTS + RIGHTS];
        locate<LEFTS + RIGHTS>(shared_plan, head.axes[SHARED], i, offsets);
        #pragma unroll
        for (int f = 0; f < LEFTS + RIGHTS; f++) places.shared[f][i] = (u32)offsets[f];
    }
    for (u32 i = thread; i < here; i += THREADS)
        locate<LEFTS + RIGHTS + 1>(batch_plan, head.axes[BATCH], first_batch + i, places.bases[i]);
    __syncthreads();

    u32 row_thread = thread / COLUMN_THREADS, column_thread = thread % COLUMN_THREADS;
    VALUE next_left[LEFT_VALUES], next_right[RIGHT_VALUES];
    Word found[ROWS][WORDS];
    read_slice(sides, places, 0, 0, shared, absent, infeasible, limit, next_left, next_right);
    keep_slice(slices, 0, next_left, next_right);
    __syncthreads();
    u32 turn = 0, batch = 0, begin = 0;
    while (true) {
        if (begin == 0) {
            #pragma unroll
            for (int r = 0; r < ROWS; r++)
                #pragma unroll
                for (int w = 0; w < WORDS; w++) found[r][w] = widened(first);
        }
        bool ends = begin + SLICE >= shared;
        u32 next_batch = ends ? batch + 1 : batch, next_begin = ends ? 0 : begin + SLICE;
        bool more = next_batch < here;
        if (more)
            read_slice(sides, places, next_batch, next_begin, shared, absent, infeasible, limit, next_left, next_right);
        #pragma unroll
        for (int k = 0; k < SLICE; k++) {
            Word a[ROWS], b[WORDS];
            #pragma unroll
            for (int r = 0; r < ROWS; r += LOAD) {
                Load read = *(const Load *)&slices.left[turn][k][r * ROW_THREADS + row_thread * LOAD];
                #pragma unroll
                for (int i = 0; i < LOAD; i++) a[r + i] = read.words[i];
            }
            #pragma unroll
            for (int w = 0; w < WORDS; w += LOAD) {
                Load read = *(const Load *)&slices.right[turn][k][w * COLUMN_THREADS + column_thread * LOAD];
                #pragma unroll
                for (int i = 0; i < LOAD; i++) b[w + i] = read.words[i];
            }
            #pragma unroll
            for (int r = 0; r < ROWS; r++)
                #pragma unroll
                for (int w = 0; w < WORDS; w++) found[r][w] = step(found[r][w], a[r], b[w]);
        }
        if (more) keep_slice(slices, turn ^ 1, next_left, next_right);
        if (ends)
            write_tile(places, batch, found, head.cells[ROW] - first_row, head.cells[COLUMN] - first_column, out,
                       infeasible, limit);
        if (!more) return;
        __syncthreads();
        turn ^= 1, batch = next_batch, begin = next_begin;
    }
}
