// Dual ascent for rows, ROWS of them at a time in each block. Arithmetic and order of steps are those of
// oocbe/bounds/kernels/cpu/row_ascent.py: bounds and states are bit-identical.
// variants: ROWS=1|2|4 THREADS=32|128|256 IN_SHARED=1|0
#include "integers.cuh"

#define REMOVED (1 << 29)
#define MOST_MOVED (1 << 28)
#define SHIFT 32
#define RESIDENT (ROWS <= 2 ? 1024 : 768) // minimum resident threads of a multiprocessor, for the register allocation
#define SMALL_DOMAIN 8
#define BATCH 4 // cells loaded together by a thread: hides the latency of the L2 cache
#define ROUNDS 4 // minimum rounds of a block over a variable's uses: the last one may leave most threads idle

// Data shared by all rows of a call. The variables of the passes have *positions*; all others are *fixed* to their one
// remaining value. A row's numbers lie in *slots*: values by position, then the shares moved out of functions by their
// uses, then one number for each use of a fixed variable. Equal slots of a block's rows are adjacent.
struct Layout {
    const i32 *source; // index in a state of each slot of positions
    const i32 *slot; // slot of each index of a state, or -1
    const i32 *fixed_source, *fixed_owner; // of each slot of fixed variables: start of its use in a state, owner
    const i32 *digit_place, *digit_owner, *digit; // values of fixed variables: index in a state, owner, value
    const i32 *value_slot; // (positions + 1)
    const i32 *first_use; // (positions + 2): uses by position, in order, those of the assigned variable last
    const i32 *use; // slot << 2 | function has an earlier variable << 1 | a later one
    const i32 *heavy; // (positions), uses in functions with other positions
    const int4 *entry; // two for each use, heavy uses of a position first: see Entry
    const int4 *place; // other variables of functions over more than two: see Place
    const i32 *near_start, *near; // (positions + 2): positions in common functions, << 2 | behind << 1 | ahead
    const i64 *fraction; // (positions)
    const i32 *tables;
    i64 positions, full, fixed, owners, digits, state, units, degree;
    i64 assigned; // position of the assigned variable, or -1
    i64 assigned_owner; // among the fixed ones, or -1
    i64 assigned_start, assigned_size; // start and number of its values in a state
    i64 need, passes, radius;
};

// A use, as two int4s. Kinds: 0 two variables, the other with a position; 1 two, the other fixed; 2 more variables.
struct Entry {
    i32 number; // among the variable's uses
    i32 kind, table;
    i32 other_slot; // kinds 0 and 1: of the other variable's use
    i32 other; // its position or owner; kind 2: index of its first place
    i32 places; // kind 2: number of places
    i32 stride; // of the own variable in the table
    i32 other_stride; // of the other variable
};

// One of the other variables of a function of kind 2.
struct Place {
    i32 slot;
    i32 other; // position, or -1 - owner
    i32 stride;
};

// The numbers of a block's rows in one slot.
struct alignas(4 * ROWS) Numbers {
    i32 of[ROWS];
};

struct Block {
    i32 *slots, *least;
    i32 *digits, *bound, *before, *low, *flags;
    int4 *entry; // of the current position
    i32 *use; // of the current position
    u32 *reached;
    unsigned short *live, *live_count;
    unsigned char *reach, *state; // state: 0 pruned, 1 in progress, 2 converged
};

__device__ __forceinline__ Entry entry_of(const int4 *entries, int number) {
    int4 first = entries[2 * number], second = entries[2 * number + 1];
    return {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
}

// Raise the reach of a position in one row to `far`.
__device__ __forceinline__ void extend(const Block &block, int position, int row, int far) {
    unsigned char *reach = block.reach + position * ROWS + row;
    if (*reach < far) {
        *reach = (unsigned char)far;
        atomicOr(block.reached + (position >> 5), 1u << (position & 31));
    }
}

// List the values that remain in at least one row; called by one warp.
__device__ void list_live(const Layout &layout, const Block &block, int position, u32 lane) {
    int first = layout.value_slot[position], size = layout.value_slot[position + 1] - first, count = 0;
    for (int begin = 0; begin < size; begin += 32) {
        int a = begin + lane;
        bool is_live = false;
        if (a < size) {
            #pragma unroll
            for (int r = 0; r < ROWS; r++) is_live |= block.slots[(i64)(first + a) * ROWS + r] != REMOVED;
        }
        u32 ballot = __ballot_sync(ALL_LANES, is_live);
        if (is_live) block.live[first + count + __popc(ballot & ((1u << lane) - 1))] = (unsigned short)a;
        count += __popc(ballot);
    }
    if (lane == 0) block.live_count[position] = (unsigned short)count;
}

// Least reduced cost of a function over more than two variables for one row, before the own variable's share: minimum
// over every slices-th combination of the others' values. `cell`: index of the own value.
__device__ int least_of_table(const Layout &layout, const Block &block, const Entry &e, int cell, int row, int slice, int slices) {
    i64 base = 0, count = 1;
    for (int p = 0; p < e.places; p++) {
        int4 place = layout.place[e.other + p];
        if (place.y >= 0) {
            count *= block.live_count[place.y];
        } else {
            cell += block.digits[(-1 - place.y) * ROWS + row] * place.z;
            base -= block.slots[(i64)place.x * ROWS + row];
        }
    }
    i64 least = REMOVED;
    for (i64 x = slice; x < count; x += slices) {
        u32 rest = (u32)x;
        int here = cell;
        i64 cost = base;
        bool is_left = true;
        for (int p = 0; p < e.places; p++) {
            int4 place = layout.place[e.other + p];
            if (place.y < 0) continue;
            u32 size = block.live_count[place.y], digit = rest % size;
            rest /= size;
            int a = block.live[layout.value_slot[place.y] + digit];
            int taken = block.slots[(i64)(place.x + a) * ROWS + row];
            is_left = is_left && taken != -REMOVED;
            here += a * place.z;
            cost -= taken;
        }
        if (is_left) least = min(least, cost + layout.tables[here]);
    }
    return (int)least;
}

// Collect and distribute costs at one position, in the rows of a mask.
__device__ void pass_over(const Layout &layout, const Block &block, int position, u32 rows, bool is_backward, int turn) {
    const int thread = threadIdx.x, first = layout.value_slot[position], count = block.live_count[position];
    const unsigned short *live = block.live + first;
    const int first_use = layout.first_use[position], uses = layout.first_use[position + 1] - first_use;
    const int heavy = layout.heavy[position] * count, need = (int)layout.need;
    // Spare threads split the other variables' values into slices.
    int slices = 1;
    while (slices < 32 && heavy * slices * 2 <= THREADS) slices *= 2;
    while (slices < 32 && heavy * slices < ROUNDS * THREADS && slices * 2 * BATCH < count + BATCH) slices *= 2;
    for (int use = thread; use < uses; use += THREADS) block.use[use] = layout.use[first_use + use];
    for (int i = thread; i < 2 * uses; i += THREADS) block.entry[i] = layout.entry[2 * first_use + i];
    __syncthreads();
    for (int begin = 0; begin < heavy * slices; begin += THREADS) {
        int unit = begin + thread, slice = unit & (slices - 1);
        unit /= slices;
        int least[ROWS];
        #pragma unroll
        for (int r = 0; r < ROWS; r++) least[r] = REMOVED;
        int use = unit / count, k = unit - use * count, number = 0;
        bool is_unit = unit < heavy;
        if (is_unit) {
            Entry e = entry_of(block.entry, use);
            int a = live[k];
            number = e.number;
            if (e.kind == 0) {
                const int values = block.live_count[e.other];
                const unsigned short *other = block.live + layout.value_slot[e.other];
                const i32 *table = layout.tables + e.table + a;
                const Numbers *taken = (const Numbers *)block.slots + e.other_slot;
                for (int x = slice; x < values; x += BATCH * slices) {
                    int b[BATCH], cost[BATCH];
                    #pragma unroll
                    for (int i = 0; i < BATCH; i++) b[i] = other[min(x + i * slices, values - 1)]; // last again
                    #pragma unroll
                    for (int i = 0; i < BATCH; i++) cost[i] = __ldg(table + b[i] * e.other_stride);
                    #pragma unroll
                    for (int i = 0; i < BATCH; i++) {
                        Numbers gone = taken[b[i]];
                        #pragma unroll
                        for (int r = 0; r < ROWS; r++) least[r] = min(least[r], cost[i] - gone.of[r]);
                    }
                }
            } else {
                for (int r = 0; r < ROWS; r++)
                    if (rows >> r & 1) least[r] = least_of_table(layout, block, e, e.table + a * e.stride, r, slice, slices);
            }
        }
        for (int offset = 1; offset < slices; offset *= 2) {
            #pragma unroll
            for (int r = 0; r < ROWS; r++) least[r] = min(least[r], __shfl_xor_sync(ALL_LANES, least[r], offset));
        }
        if (is_unit && slice == 0) {
            #pragma unroll
            for (int r = 0; r < ROWS; r++) block.least[(number * count + k) * ROWS + r] = least[r];
        }
    }
    for (int unit = heavy + thread; unit < uses * count; unit += THREADS) {
        int use = unit / count, k = unit - use * count;
        Entry e = entry_of(block.entry, use);
        const i32 *table = layout.tables + e.table + live[k];
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            int taken = block.slots[(i64)e.other_slot * ROWS + r];
            int cost = min(REMOVED, table[block.digits[e.other * ROWS + r] * e.other_stride] - taken);
            block.least[(e.number * count + k) * ROWS + r] = cost;
        }
    }
    __syncthreads();
    const int row = thread % ROWS;
    const bool is_open = rows >> row & 1;
    int low = REMOVED;
    for (int i = thread; i < count * ROWS && is_open; i += THREADS) {
        int a = live[i / ROWS], cost = block.slots[(i64)(first + a) * ROWS + row];
        if (cost == REMOVED) continue;
        #pragma unroll 4
        for (int use = 0; use < uses; use++) {
            i32 *taken = block.slots + (i64)((block.use[use] >> 2) + a) * ROWS + row;
            int least = block.least[use * count * ROWS + i], before = *taken;
            int more = max(0, min(min(least - before, REMOVED - 1 - cost), MOST_MOVED - before));
            if (least == REMOVED) {
                cost = REMOVED - 1; // no tuple: removed below
            } else {
                cost += more;
                *taken = before + more;
            }
        }
        block.slots[(i64)(first + a) * ROWS + row] = cost;
        low = min(low, cost);
    }
    for (int offset = ROWS; offset < 32; offset *= 2) low = min(low, __shfl_xor_sync(ALL_LANES, low, offset));
    if (lane_number() < ROWS && is_open) atomicMin(block.low + row, low);
    __syncthreads();
    low = block.low[row];
    const int bound = block.bound[row] + low;
    const bool is_left = is_open && bound < need && low != REMOVED;
    const i64 fraction = layout.fraction[position];
    i32 *flags = block.flags + (turn & 1) * ROWS;
    for (int i = thread; i < count * ROWS && is_left; i += THREADS) {
        int a = live[i / ROWS], cost = block.slots[(i64)(first + a) * ROWS + row];
        if (cost == REMOVED) continue;
        if (cost - low + bound >= need) {
            for (int use = 0; use < uses; use++)
                block.slots[(i64)((block.use[use] >> 2) + a) * ROWS + row] = -REMOVED;
            cost = REMOVED;
            atomicOr(flags + row, 1);
        } else {
            cost -= low;
            int share = (int)((cost * fraction) >> SHIFT);
            if (share != 0) {
                atomicOr(flags + row, 2);
                #pragma unroll 4
                for (int use = 0; use < uses; use++) {
                    int packed = block.use[use];
                    if (packed & (is_backward ? 2 : 1)) {
                        i32 *taken = block.slots + (i64)((packed >> 2) + a) * ROWS + row;
                        int part = min(share, *taken + MOST_MOVED);
                        *taken -= part;
                        cost -= part;
                    }
                }
            }
        }
        block.slots[(i64)(first + a) * ROWS + row] = cost;
    }
    __syncthreads();
    const int near_start = layout.near_start[position], near = layout.near_start[position + 1] - near_start;
    const int flag = flags[row], further = is_open ? block.reach[position * ROWS + row] - 1 : 0;
    for (int i = thread; i < near * ROWS && is_left; i += THREADS) {
        int packed = layout.near[near_start + i / ROWS];
        if (flag & 1) extend(block, packed >> 2, row, (int)layout.radius);
        else if (flag & 2 && packed & (is_backward ? 2 : 1)) extend(block, packed >> 2, row, further);
    }
    if (thread < ROWS) {
        block.low[thread] = REMOVED;
        block.flags[(turn + 1 & 1) * ROWS + thread] = 0;
        if (is_open) {
            if (is_left) {
                block.bound[thread] = bound;
            } else {
                block.bound[thread] = need;
                block.state[thread] = 0;
            }
        }
    }
    int removed = 0;
    #pragma unroll
    for (int r = 0; r < ROWS; r++) removed |= flags[r];
    if (removed & 1 && thread < 32) list_live(layout, block, position, lane_number());
    __syncthreads();
}

// Next reached position from `from` on, in one direction; -1 if there is none.
__device__ int next_reached(const Block &block, int positions, int from, bool is_backward) {
    if (from < 0 || from >= positions) return -1;
    int word = from >> 5;
    u32 bits = block.reached[word] & (is_backward ? ALL_LANES >> (31 - (from & 31)) : ALL_LANES << (from & 31));
    while (bits == 0) {
        word += is_backward ? -1 : 1;
        if (word < 0 || word > (positions - 1) >> 5) return -1;
        bits = block.reached[word];
    }
    return (word << 5) + (is_backward ? 31 - __clz(bits) : __ffs(bits) - 1);
}

// Bit mask of the rows in progress; below, of those that reach a position.
__device__ __forceinline__ u32 rows_left(const Block &block) {
    u32 rows = 0;
    #pragma unroll
    for (int r = 0; r < ROWS; r++) rows |= (u32)(block.state[r] == 1) << r;
    return rows;
}

__device__ __forceinline__ u32 rows_at(const Block &block, int position) {
    u32 rows = 0;
    #pragma unroll
    for (int r = 0; r < ROWS; r++) rows |= (u32)(block.state[r] == 1 && block.reach[position * ROWS + r] != 0) << r;
    return rows;
}

// Bounds of rows: each is a parent's row with a value of one more variable. `parents` (parents, state), `bounds_before`
// (parents), `parent`, `value` (rows); `states` (rows, state), `bounds` (rows) are written, states only for surviving
// rows. `scratch` (blocks, slots * ROWS): slots outside shared memory.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT / THREADS)
bound_rows(Layout layout, const i32 *parents, const i32 *bounds_before, const i32 *parent, const i32 *value, i64 rows,
           i32 *states, i32 *bounds, i32 *scratch) {
    extern __shared__ int4 memory[];
    const int thread = threadIdx.x, positions = (int)layout.positions, need = (int)layout.need;
    const i64 slots = layout.full + layout.fixed;
    const u32 lane = lane_number();
    Block block;
    block.entry = memory;
    i32 *free = (i32 *)(memory + 2 * layout.degree);
#if IN_SHARED
    block.slots = free;
    free += slots * ROWS;
#else
    block.slots = scratch + blockIdx.x * slots * ROWS;
#endif
    block.least = free;
    free += layout.units * ROWS;
    block.digits = free;
    free += layout.owners * ROWS;
    block.bound = free;
    block.before = block.bound + ROWS;
    block.low = block.before + ROWS;
    block.flags = block.low + ROWS;
    block.use = block.flags + 2 * ROWS;
    free = block.use + layout.degree;
    block.reached = (u32 *)free;
    free += (positions + 31) / 32;
    block.live = (unsigned short *)free;
    block.live_count = block.live + layout.value_slot[positions];
    block.reach = (unsigned char *)(block.live_count + positions);
    block.state = block.reach + positions * ROWS;
    const int first_use = layout.first_use[positions], uses = layout.first_use[positions + 1] - first_use;
    for (i64 group = (i64)blockIdx.x * ROWS; group < rows; group += (i64)gridDim.x * ROWS) {
        // Load the parents' states.
        const int row = thread % ROWS;
        const i64 own = min(group + row, rows - 1);
        const i32 *before = parents + (i64)parent[own] * layout.state;
        const int given = value[own];
        for (i64 i = thread; i < layout.full * ROWS; i += THREADS) block.slots[i] = before[layout.source[i / ROWS]];
        for (i64 i = thread; i < layout.digits * ROWS; i += THREADS) {
            int number = (int)(i / ROWS);
            if (before[layout.digit_place[number]] != REMOVED)
                block.digits[layout.digit_owner[number] * ROWS + row] = layout.digit[number];
        }
        for (int i = thread; i < (positions + 31) / 32; i += THREADS) block.reached[i] = 0;
        for (int i = thread; i < positions * ROWS; i += THREADS) block.reach[i] = 0;
        if (thread < ROWS) {
            if (layout.assigned_owner >= 0) block.digits[layout.assigned_owner * ROWS + row] = given;
            block.low[row] = REMOVED;
            block.flags[row] = block.flags[ROWS + row] = 0;
            block.bound[row] = bounds_before[parent[own]];
            block.state[row] = group + row < rows && before[layout.assigned_start + given] != REMOVED;
        }
        __syncthreads();
        for (i64 i = thread; i < layout.fixed * ROWS; i += THREADS) {
            int number = (int)(i / ROWS), digit = block.digits[layout.fixed_owner[number] * ROWS + row];
            block.slots[layout.full * ROWS + i] = before[layout.fixed_source[number] + digit];
        }
        // Remove the other values of the assigned variable.
        for (i64 i = thread; i < layout.assigned_size * ROWS; i += THREADS) {
            int a = (int)(i / ROWS);
            if (a == given || before[layout.assigned_start + a] == REMOVED) continue;
            atomicOr(block.flags + row, 1);
            if (layout.assigned >= 0) {
                block.slots[(i64)(layout.value_slot[layout.assigned] + a) * ROWS + row] = REMOVED;
                for (int use = 0; use < uses; use++)
                    block.slots[(i64)((layout.use[first_use + use] >> 2) + a) * ROWS + row] = -REMOVED;
            }
        }
        __syncthreads();
        for (int p = thread; p < positions; p += THREADS) {
            int first = layout.value_slot[p], size = layout.value_slot[p + 1] - first, count = 0;
            if (size > SMALL_DOMAIN) continue;
            for (int a = 0; a < size; a++) {
                bool is_live = false;
                #pragma unroll
                for (int r = 0; r < ROWS; r++) is_live |= block.slots[(i64)(first + a) * ROWS + r] != REMOVED;
                if (is_live) block.live[first + count++] = (unsigned short)a;
            }
            block.live_count[p] = (unsigned short)count;
        }
        for (int p = thread / 32; p < positions; p += THREADS / 32)
            if (layout.value_slot[p + 1] - layout.value_slot[p] > SMALL_DOMAIN) list_live(layout, block, p, lane);
        const int near_start = layout.near_start[positions], near = layout.near_start[positions + 1] - near_start;
        for (int i = thread; i < near * ROWS; i += THREADS)
            if (block.flags[row]) extend(block, layout.near[near_start + i / ROWS] >> 2, row, (int)layout.radius);
        __syncthreads();
        // Spare cost of its functions for the assigned value; one warp for each function and row.
        for (int unit = thread / 32; unit < uses * ROWS; unit += THREADS / 32) {
            int use = unit / ROWS, r = unit % ROWS, a = value[min(group + r, rows - 1)];
            Entry e = entry_of(layout.entry, first_use + use);
            int least = REMOVED;
            if (e.kind == 0) {
                const int values = block.live_count[e.other];
                const unsigned short *other = block.live + layout.value_slot[e.other];
                for (int x = lane; x < values; x += 32) {
                    int b = other[x], taken = block.slots[(i64)(e.other_slot + b) * ROWS + r];
                    least = min(least, layout.tables[e.table + a * e.stride + b * e.other_stride] - taken);
                }
            } else if (e.kind == 1) {
                int b = block.digits[e.other * ROWS + r];
                int taken = block.slots[(i64)e.other_slot * ROWS + r];
                least = min(least, layout.tables[e.table + a * e.stride + b * e.other_stride] - taken);
            } else {
                least = least_of_table(layout, block, e, e.table + a * e.stride, r, lane, 32);
            }
            for (int offset = 1; offset < 32; offset *= 2) least = min(least, __shfl_xor_sync(ALL_LANES, least, offset));
            if (lane == 0) block.least[e.number * ROWS + r] = least;
        }
        __syncthreads();
        if (thread < ROWS && block.state[row] == 1) {
            int cost = before[layout.assigned_start + given];
            for (int use = 0; use < uses; use++) {
                i32 *taken = block.slots + (i64)((layout.use[first_use + use] >> 2) + (layout.assigned >= 0 ? given : 0)) * ROWS + row;
                int least = block.least[use * ROWS + row];
                if (least == REMOVED) {
                    cost = REMOVED - 1;
                } else {
                    int more = max(0, min(min(least - *taken, REMOVED - 1 - cost), MOST_MOVED - *taken));
                    cost += more;
                    *taken += more;
                }
            }
            block.bound[row] += cost;
            if (block.bound[row] >= need) block.state[row] = 0;
            if (layout.assigned >= 0) block.slots[(i64)(layout.value_slot[layout.assigned] + given) * ROWS + row] = 0;
        }
        if (thread < ROWS) block.flags[row] = 0;
        __syncthreads();
        int turn = 0;
        for (int number = 0; number < layout.passes && rows_left(block); number++) {
            const bool is_backward = (layout.passes - number) % 2 == 1;
            if (thread < ROWS) block.before[row] = block.bound[row];
            int position = next_reached(block, positions, is_backward ? positions - 1 : 0, is_backward);
            while (position >= 0) {
                u32 wanted = rows_at(block, position);
                if (wanted) pass_over(layout, block, position, wanted, is_backward, turn++);
                position = next_reached(block, positions, position + (is_backward ? -1 : 1), is_backward);
            }
            __syncthreads();
            if (thread < ROWS && number >= 1 && block.state[row] == 1 && block.bound[row] == block.before[row])
                block.state[row] = 2;
            __syncthreads();
        }
        // Write the states of surviving rows.
        for (int r = 0; r < ROWS; r++) {
            if (!block.state[r]) continue;
            const i32 *old = parents + (i64)parent[group + r] * layout.state;
            i32 *made = states + (group + r) * layout.state;
            for (i64 i = thread; i < layout.state; i += THREADS) {
                int slot = layout.slot[i];
                made[i] = slot >= 0 ? block.slots[(i64)slot * ROWS + r] : old[i];
            }
        }
        if (thread < ROWS && group + row < rows) bounds[group + row] = block.state[row] ? block.bound[row] : need;
        __syncthreads();
        if (layout.assigned < 0) {
            for (i64 i = thread; i < layout.assigned_size * ROWS; i += THREADS) {
                int a = (int)(i / ROWS);
                if (!block.state[row]) continue;
                i32 *made = states + (group + row) * layout.state;
                made[layout.assigned_start + a] = a == given ? 0 : REMOVED;
                for (int use = 0; use < uses; use++) {
                    int slot = layout.use[first_use + use] >> 2;
                    made[layout.fixed_source[slot - layout.full] + a] = a == given ? block.slots[(i64)slot * ROWS + row] : -REMOVED;
                }
            }
        }
        __syncthreads();
    }
}
