// Compact-Table for a batch of tables (Demeulenaere et al. 2016; Santi et al. 2025, algorithms 1 to 3), round after round
// until none of them removes a value, in one cooperative launch.
//
// The rows left of a table are bits. Which rows fit a value is not kept as bits but read off the rows themselves, a column at
// a time: codes of a byte or two take less than bit sets wherever variables have more than eight or sixteen values (6 MB
// instead of 200 for 15,000 rows over 200 variables of 800), so that they stay in the second cache, and a warp reads 32 of
// them at once.
//
// A round: blocks take the rows of waiting tables that have lost a value out of the rows left (tiles of words); then each
// block takes variables, and keeps the values that some row left of each waiting table has. Only one block removes values
// of a variable, so rounds are the same whatever the blocks. Within the phases, words that others write are only ever
// cleared or set to a round's number, by few threads: stores to one place take their turns, some nanoseconds each.
// variants: CODE=unsigned char|unsigned short|unsigned int
#include "integers.cuh"

#define THREADS 512
#define WARPS (THREADS / 32)
// Of a multiprocessor, that registers are shared among.
#define RESIDENT_BLOCKS 2
// Columns of a table that are looked at together.
#define LIST 256
// Codes that a thread reads at a time: rows of one byte of bits.
#define ROWS 8
// Bytes of bits that a thread has under way.
#define ITEMS 2
#define NONE 0xFFFFFFFFFFFFFFFFull

typedef unsigned char u8;
typedef unsigned short u16;

// Columns of all tables are counted on from one table to the next. Rows of each table are filled up to a multiple of 256:
// what a column has there is not looked at.
struct Tables {
    const CODE *codes;
    const i64 *columns; // (tables + 1): first column of each table
    const i64 *words; // (tables + 1): first word of each table's rows left, 8 a multiple of 256 rows
    const i64 *code_starts; // (columns): where each one's codes begin
    const i64 *column_variables, *column_tables; // (columns)
    const i64 *offsets; // (variables + 1): where each variable's values begin among those of all
    const i64 *uses; // (variables + 1): first of each one's columns in the next array
    const i64 *columns_of; // (columns)
    const i64 *tile_tables, *tile_words; // (tiles): the table, and the first of TILE words
    const i64 *chunk_variables; // (values / 16): the first variable that has one of 16 neighbouring values
    i64 tables, variables, values, tiles, tile_size;
    i64 share; // warps that share the columns of a word: a power of two
};

// What is left, in slots for the levels of a search, and numbers of rounds, which only grow.
struct State {
    u32 *alive; // (slots, alive_stride): a bit a value, whole chunks of 16
    u32 *current; // (slots, current_stride): a bit a row
    u64 *changed; // (variables): round for which a variable has lost values
    u64 *waiting; // (2, tables): round in which a table is to be filtered, even and odd rounds apart
    u64 *inhabited; // (tables): last round in which a table was filtered and had a row left
    u64 *reported; // (variables): number of the last call that reported lost values of the variable
    i64 *supported; // (columns): values that have a row, of a column that was looked at in this round
    u64 *report; // see below
    u32 *arrived; // (2): blocks that have come to a place to wait, and to the end
    i64 alive_stride, current_stride;
};

// A call. The host's arrays are in its memory, which the device reads and writes by itself.
struct Call {
    u8 *flags; // (values, rounded up to 16): 1 for each value that is left; 0 is written where one goes
    i64 *counts; // (variables): written where values go
    i64 *lost; // (variables): written, variables that lost values, in any order
    u64 *answer; // (6): see below, and last the number of the call
    i64 source, target; // slots: of what was left when the call before was over, and what is left behind this one
    u64 first_round, number;
    i64 most, all; // rounds at most; whether all tables are filtered, or those of which a variable has lost values
};

// The report, on the device, and the first five of the answer.
#define LOST 0 // variables that lost values
#define FAILED_TABLE 1 // the first table that has no row left, or NONE
#define FAILED_VARIABLE 2 // the first variable that has no value left although its tables have rows, or NONE
#define AGAIN 3 // the last round for which a table is waiting
#define NEXT_ROUND 4
#define NUMBER 5

struct Listed { i64 codes, offset, size; };

__device__ __forceinline__ bool is_alive(const u32 *alive, i64 value) { return alive[value >> 5] >> (value & 31) & 1; }

// 32 of a variable's flags from its value `first` on; 0 beyond its size.
__device__ __forceinline__ u32 flags_from(const u32 *alive, i64 offset, i64 size, i64 first) {
    i64 value = offset + first;
    u32 shift = (u32)(value & 31), low = load_relaxed(alive + (value >> 5));
    u32 high = shift && first + 32 - shift < size ? load_relaxed(alive + (value >> 5) + 1) : 0;
    u32 flags = __funnelshift_r(low, high, shift);
    return size - first >= 32 ? flags : flags & ((1u << (size - first)) - 1);
}

// Sum of a number over the threads of a block, all of which come here; `total` is free again behind the next barrier.
__device__ __forceinline__ u32 sum_of_block(u32 mine, u32 *total) {
    __syncthreads();
    if (threadIdx.x == 0) *total = 0;
    __syncthreads();
    #pragma unroll
    for (int step = 16; step > 0; step /= 2) mine += __shfl_xor_sync(ALL_LANES, mine, step);
    if (lane_number() == 0 && mine) atomicAdd(total, mine);
    __syncthreads();
    return *total;
}

// Mark a variable's tables for filtering in a round: those of the columns that `waits` selects.
template <typename Waits>
__device__ __forceinline__ void wake(const Tables &tables, const State &state, i64 v, u64 round, Waits waits) {
    for (i64 use = tables.uses[v]; use < tables.uses[v + 1]; use++) {
        i64 column = tables.columns_of[use], table = tables.column_tables[column];
        if (!waits(column, table)) continue;
        store_relaxed(state.waiting + (round & 1) * tables.tables + table, round);
        store_relaxed(state.report + AGAIN, round);
    }
}

// Take what the host says is left, and mark variables that have lost values since the last call.
__device__ __forceinline__ void take_flags(const Tables &tables, const State &state, const Call &call) {
    const u16 *before = (const u16 *)(state.alive + call.source * state.alive_stride);
    u16 *after = (u16 *)(state.alive + call.target * state.alive_stride);
    i64 threads = (i64)gridDim.x * THREADS, me = (i64)blockIdx.x * THREADS + threadIdx.x;
    for (i64 chunk = me; chunk < (tables.values + 15) / 16; chunk += threads) {
        uint4 flags = __ldcv((const uint4 *)call.flags + chunk);
        // Four flags of a byte each, 0 or 1, become four bits at the top.
        u32 bits = flags.x * 0x10204080u >> 28 | (flags.y * 0x10204080u >> 28) << 4 |
                   (flags.z * 0x10204080u >> 28) << 8 | (flags.w * 0x10204080u >> 28) << 12;
        u32 lost = before[chunk] & ~bits;
        after[chunk] = (u16)bits;
        if (!lost) continue;
        for (i64 v = tables.chunk_variables[chunk]; v < tables.variables && tables.offsets[v] < 16 * chunk + 16; v++) {
            i64 begin = tables.offsets[v] - 16 * chunk, end = tables.offsets[v + 1] - 16 * chunk;
            if (begin < 0) begin = 0;
            if (end > 16) end = 16;
            if (end <= begin || !(lost >> begin & ((1u << (end - begin)) - 1))) continue;
            store_relaxed(state.changed + v, call.first_round);
        }
    }
}

// Whether a table is to be filtered in a round; all threads of the block come here. In a call's first round these are those with
// a variable that was marked, too.
__device__ __forceinline__ bool is_waiting(const Tables &tables, const State &state, const Call &call, i64 table, u64 round) {
    u64 *place = state.waiting + (round & 1) * tables.tables + table;
    bool waits = load_relaxed(place) == round;
    if (round != call.first_round) return waits;
    waits |= call.all != 0;
    for (i64 column = tables.columns[table] + threadIdx.x; column < tables.columns[table + 1]; column += THREADS)
        waits |= load_relaxed(state.changed + tables.column_variables[column]) == round;
    waits = __syncthreads_or(waits);
    if (waits && threadIdx.x == 0) store_relaxed(place, round);
    return waits;
}

// Take rows that have a value that went in this round out of the rows left of one tile.
__device__ __forceinline__ void update_tile(const Tables &tables, const State &state, const Call &call, i64 tile, u64 round,
                                            Listed *list, u32 *masks, u32 *listed) {
    i64 table = tables.tile_tables[tile], first = tables.tile_words[tile], end = first + tables.tile_size;
    if (end > tables.words[table + 1]) end = tables.words[table + 1];
    bool is_first = round == call.first_round;
    const u32 *alive = state.alive + call.target * state.alive_stride;
    const u32 *source = state.current + (is_first ? call.source : call.target) * state.current_stride;
    u32 *target = state.current + call.target * state.current_stride;
    if (!is_waiting(tables, state, call, table, round)) {
        if (is_first && source != target)
            for (i64 word = first + threadIdx.x; word < end; word += THREADS) target[word] = source[word];
        return;
    }
    i64 columns = tables.columns[table + 1];
    int share = (int)tables.share, at_once = WARPS / share;
    int warp = threadIdx.x / 32, place = warp / share, part = warp % share;
    bool any = false;
    for (i64 base = tables.columns[table]; base < columns; base += LIST) {
        __syncthreads(); // nobody reads the list any more
        if (threadIdx.x == 0) *listed = 0;
        __syncthreads();
        i64 column = base + threadIdx.x;
        if (threadIdx.x < LIST && column < columns) {
            i64 v = tables.column_variables[column];
            if (load_relaxed(state.changed + v) == round)
                list[atomicAdd(listed, 1u)] = {tables.code_starts[column], tables.offsets[v],
                                               tables.offsets[v + 1] - tables.offsets[v]};
        }
        __syncthreads();
        int count = (int)*listed;
        bool is_last = base + LIST >= columns;
        for (i64 begin = first; begin < end; begin += at_once) {
            i64 word = begin + place;
            u32 left = word < end ? source[word] : 0;
            bool stays = left >> lane_number() & 1;
            if (left) {
                i64 row = (word - tables.words[table]) * 32 + lane_number();
                #pragma unroll 4
                for (int i = part; i < count; i += share) {
                    Listed one = list[i];
                    i64 code = tables.codes[one.codes + row];
                    // A code beyond the values fits them all. No load waits for the one before.
                    stays &= is_alive(alive, one.offset + (code < one.size ? code : 0)) || code >= one.size;
                }
                left = __ballot_sync(ALL_LANES, stays);
            }
            if (share > 1) {
                __syncthreads();
                if (lane_number() == 0) masks[warp] = left;
                __syncthreads();
                for (int other = place * share; other < (place + 1) * share; other++) left &= masks[other];
            }
            if (word < end && part == 0 && lane_number() == 0) target[word] = left;
            any |= is_last && left;
        }
        source = target; // the same threads read what they wrote
    }
    if (__syncthreads_or(any) && threadIdx.x == 0 && load_relaxed(state.inhabited + table) != round)
        store_relaxed(state.inhabited + table, round);
}

// Codes of eight rows.
struct Eight { CODE code[ROWS]; };

__device__ __forceinline__ Eight codes_of_eight(const CODE *codes) {
    Eight found;
    #pragma unroll
    for (int part = 0; part < (int)(sizeof(CODE) * ROWS / 8); part++) {
        u64 word = ((const u64 *)codes)[part];
        #pragma unroll
        for (int i = 0; i < (int)(8 / sizeof(CODE)); i++)
            found.code[part * (8 / sizeof(CODE)) + i] = (CODE)(word >> (i * 8 * sizeof(CODE)));
    }
    return found;
}

// Set bits of `seen` for values of a column that rows left of its table have; `alive`: values that matter. All of the
// column's values are seen where a row fits them all. Returns whether one does.
__device__ __forceinline__ bool see_values(const Tables &tables, const u32 *current, i64 column, i64 size, i32 width,
                                           const u32 *alive, u32 *seen, u32 *wanted, u32 *fits_all) {
    i64 table = tables.column_tables[column], first = tables.words[table];
    i64 bytes = (tables.words[table + 1] - first) * 4;
    const u8 *rows = (const u8 *)(current + first);
    const CODE *codes = tables.codes + tables.code_starts[column];
    __syncthreads(); // nobody reads what was seen before any more
    for (i32 i = threadIdx.x; i < width; i += THREADS) {
        seen[i] = 0;
        wanted[i] = alive[i];
    }
    if (threadIdx.x == 0) *fits_all = 0;
    __syncthreads();
    u32 steps = 0;
    for (i64 base = 0; base < bytes; base += ITEMS * THREADS) {
        u32 left[ITEMS];
        #pragma unroll
        for (int item = 0; item < ITEMS; item++) {
            i64 byte = base + item * THREADS + threadIdx.x;
            left[item] = byte < bytes ? rows[byte] : 0;
        }
        Eight found[ITEMS];
        #pragma unroll
        for (int item = 0; item < ITEMS; item++)
            if (left[item]) found[item] = codes_of_eight(codes + (base + item * THREADS + threadIdx.x) * ROWS);
        #pragma unroll
        for (int item = 0; item < ITEMS; item++) {
            #pragma unroll
            for (int i = 0; i < ROWS; i++) {
                if (!(left[item] >> i & 1)) continue;
                u32 code = found[item].code[i];
                if (code >= size) atomicOr(fits_all, 1u);
                else if (wanted[code >> 5] >> (code & 31) & 1) atomicOr(seen + (code >> 5), 1u << (code & 31));
            }
        }
        // Values that have been seen are wanted no more: looked at after twice as many steps each time.
        steps++;
        if (steps & (steps - 1)) continue;
        __syncthreads();
        bool is_wanted = false;
        for (i32 i = threadIdx.x; i < width; i += THREADS) {
            wanted[i] = alive[i] & ~seen[i];
            is_wanted |= wanted[i] != 0;
        }
        if (*fits_all) is_wanted = false;
        if (!__syncthreads_or(is_wanted)) break;
    }
    __syncthreads();
    return *fits_all;
}

// Tell the host what is left of a variable.
__device__ __forceinline__ void tell(const Tables &tables, const State &state, const Call &call, i64 v, const u32 *kept,
                                     u32 count) {
    i64 begin = tables.offsets[v], end = tables.offsets[v + 1];
    for (i64 word = (begin >> 2) + threadIdx.x; 4 * word < end; word += THREADS) {
        u32 flags = 0;
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            i64 value = 4 * word + i - begin;
            if (value >= 0 && value < end - begin) flags |= (kept[value >> 5] >> (value & 31) & 1) << (8 * i);
        }
        if (4 * word >= begin && 4 * word + 4 <= end) {
            ((u32 *)call.flags)[word] = flags;
        } else { // neighbours are another block's
            for (int i = 0; i < 4; i++)
                if (4 * word + i >= begin && 4 * word + i < end) call.flags[4 * word + i] = (u8)(flags >> (8 * i));
        }
    }
    if (threadIdx.x != 0) return;
    call.counts[v] = count;
    if (state.reported[v] == call.number) return;
    state.reported[v] = call.number;
    call.lost[atomicAdd(state.report + LOST, 1ull)] = v;
}

// Keep the values of a variable that some row left of each waiting table has.
__device__ __forceinline__ void filter_variable(const Tables &tables, const State &state, const Call &call, i64 v, u64 round,
                                                u32 *shared, i64 room, u32 *total, u32 *fits_all) {
    i64 first = tables.uses[v], last = tables.uses[v + 1];
    const u64 *waiting = state.waiting + (round & 1) * tables.tables;
    bool waits = false;
    for (i64 use = first + threadIdx.x; use < last; use += THREADS)
        waits |= load_relaxed(waiting + tables.column_tables[tables.columns_of[use]]) == round;
    if (!__syncthreads_or(waits)) return;
    u32 *alive = state.alive + call.target * state.alive_stride;
    const u32 *current = state.current + call.target * state.current_stride;
    u32 *before = shared, *kept = shared + room, *seen = shared + 2 * room, *wanted = shared + 3 * room;
    i64 offset = tables.offsets[v], size = tables.offsets[v + 1] - offset;
    i32 width = (i32)((size + 31) / 32);
    u32 mine = 0;
    for (i32 i = threadIdx.x; i < width; i += THREADS) {
        before[i] = kept[i] = flags_from(alive, offset, size, 32 * (i64)i);
        mine += __popc(before[i]);
    }
    u32 count = sum_of_block(mine, total);
    for (i64 use = first; use < last; use++) {
        i64 column = tables.columns_of[use], table = tables.column_tables[column];
        if (load_relaxed(waiting + table) != round) continue;
        if (load_relaxed(state.inhabited + table) != round) {
            if (threadIdx.x == 0) atomicMin(state.report + FAILED_TABLE, (u64)table);
            return;
        }
        u32 supported = count;
        if (count > 1 && !see_values(tables, current, column, size, width, before, seen, wanted, fits_all)) {
            mine = 0;
            for (i32 i = threadIdx.x; i < width; i += THREADS) {
                kept[i] &= seen[i];
                mine += __popc(before[i] & seen[i]);
            }
            supported = sum_of_block(mine, total);
        }
        if (threadIdx.x == 0) state.supported[column] = supported;
    }
    mine = 0;
    for (i32 i = threadIdx.x; i < width; i += THREADS) mine += __popc(kept[i]);
    u32 now = sum_of_block(mine, total);
    if (now == count) return;
    for (i32 i = threadIdx.x; i < width; i += THREADS) {
        u32 gone = before[i] & ~kept[i];
        i64 value = offset + 32 * (i64)i;
        u32 shift = (u32)(value & 31);
        if (gone << shift) atomicAnd(alive + (value >> 5), ~(gone << shift));
        if (shift && gone >> (32 - shift)) atomicAnd(alive + (value >> 5) + 1, ~(gone >> (32 - shift)));
    }
    tell(tables, state, call, v, kept, now);
    if (threadIdx.x != 0) return;
    if (now == 0) atomicMin(state.report + FAILED_VARIABLE, (u64)v);
    store_relaxed(state.changed + v, round + 1);
    // Tables that had rows for a value that went because of another one.
    wake(tables, state, v, round + 1, [&](i64 column, i64 table) {
        return load_relaxed(waiting + table) != round || state.supported[column] != now;
    });
}

// See the structs. In shared memory: four times `room` words, for the values of the largest variable each. All but what
// is the slot's is as the call before left it: the report {0, NONE, NONE, 0}, arrived {0, 0}.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT_BLOCKS)
filter_tables(const __grid_constant__ Tables tables, const __grid_constant__ State state,
              const __grid_constant__ Call call, i64 room) {
    extern __shared__ u32 shared[];
    __shared__ Listed list[LIST];
    __shared__ u32 masks[WARPS];
    __shared__ u32 listed, total, fits_all;
    u32 waits = 0;
    u64 round = call.first_round;
    take_flags(tables, state, call);
    wait_for_all(state.arrived, ++waits);
    while (true) {
        for (i64 tile = blockIdx.x; tile < tables.tiles; tile += gridDim.x)
            update_tile(tables, state, call, tile, round, list, masks, &listed);
        wait_for_all(state.arrived, ++waits);
        for (i64 v = blockIdx.x; v < tables.variables; v += gridDim.x)
            filter_variable(tables, state, call, v, round, shared, room, &total, &fits_all);
        round++;
        if (round - call.first_round >= (u64)call.most) break;
        wait_for_all(state.arrived, ++waits);
        if (load_relaxed(state.report + AGAIN) != round || load_relaxed(state.report + FAILED_TABLE) != NONE ||
            load_relaxed(state.report + FAILED_VARIABLE) != NONE)
            break;
    }
    // The last block to arrive answers, after all reports have reached the host.
    __syncthreads();
    if (threadIdx.x != 0) return;
    __threadfence_system();
    if (atomicAdd(state.arrived + 1, 1u) != gridDim.x - 1) return;
    __threadfence();
    for (int i = LOST; i <= AGAIN; i++) call.answer[i] = load_relaxed(state.report + i);
    call.answer[NEXT_ROUND] = round;
    state.report[LOST] = 0;
    state.report[FAILED_TABLE] = state.report[FAILED_VARIABLE] = NONE;
    state.arrived[0] = state.arrived[1] = 0;
    __threadfence_system();
    *(volatile u64 *)(call.answer + NUMBER) = call.number;
}
