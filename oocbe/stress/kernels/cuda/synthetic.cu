// Rows of sorted synthetic tables, and checks of results' rows: the loops of oocbe/stress/kernels/cpu/synthetic.py.
// In a sorted table, the number of a group is its rank.
// variants: VALUE=int|long long
#include "integers.cuh"

#define THREADS 256
#define TILE 2048

// Numbers below it, and sums of two and a tile, are short: divisions take 32 bits.
#define SHORT (1ll << 30)

// A range of ranks: the first one, a number of each rank, and the sum of these numbers over earlier ranges.
struct Class { i64 first, count, before; };
// The same, of a result's rows.
struct Piece { i64 first, before, count; };
// Place of a variable in a key, and its number of values.
struct Field { i64 word, shift, mask, size; };
struct Settings { i64 seed, half, stride, groups, step, shift, back; };

// The part of `mixed` that depends on seed and rank.
__device__ __forceinline__ u64 mixed_base(i64 seed, i64 rank) {
    return (u64)seed * 0x9E3779B97F4A7C15ull + (u64)rank * 0xBF58476D1CE4E5B9ull;
}

__device__ __forceinline__ u64 scrambled(u64 word) {
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9ull;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBull;
    return word ^ (word >> 31);
}

// A term of a value: below 1000.
__device__ __forceinline__ u32 term(u64 base, u64 number) { return (u32)(scrambled(base + number) >> 32) % 1000u; }

__device__ __forceinline__ u64 finalised(u64 word) { return scrambled(word + 0x9E3779B97F4A7C15ull); }

__device__ __forceinline__ u64 quotient(u64 a, u64 b) { return (a | b) >> 32 ? a / b : (u32)a / (u32)b; }
__device__ __forceinline__ u64 rest_of(u64 a, u64 b) { return (a | b) >> 32 ? a % b : (u32)a % (u32)b; }

// Last range whose `member` is at most a number.
template <typename Range>
__device__ __forceinline__ Range range_of(const Range *ranges, i64 count, i64 Range::*member, i64 number) {
    i64 low = 0, high = count;
    while (high - low > 1) {
        i64 middle = (low + high) >> 1;
        if (ranges[middle].*member <= number) low = middle; else high = middle;
    }
    return ranges[low];
}

// A row: number of own values of its group, rank, own value, and number among the rows of the own value; and the
// rank modulo the number of own values and modulo the stride.
struct Place { i64 many, rank, own, part, turn, rest; };

__device__ __forceinline__ Place place_of(i64 row, const Class *classes, i64 class_count, const Settings &settings) {
    i64 pair = (i64)quotient(row, settings.half);
    Class found = range_of(classes, class_count, &Class::before, pair);
    i64 into = pair - found.before, skipped = (i64)quotient(into, found.count), rank = found.first + skipped;
    return {found.count, rank, into - skipped * found.count, row - pair * settings.half,
            (i64)rest_of(rank, found.count), (i64)rest_of(rank, settings.stride)};
}

// The row `ahead` of another one in the same class; Number holds all sums.
template <typename Number>
__device__ __forceinline__ Place moved(const Place &base, u32 ahead, const Settings &settings) {
    Number many = (Number)base.many, half = (Number)settings.half, stride = (Number)settings.stride;
    Number parts = (Number)base.part + ahead, pairs = parts / half, own = (Number)base.own + pairs, ranks = own / many;
    own -= ranks * many;
    return {base.many, base.rank + (i64)ranks, (i64)own, (i64)(parts - pairs * half),
            (i64)((own + (Number)base.turn + ranks) % many), (i64)(((Number)base.rest + ranks) % stride)};
}

// Rows `start` and following: keys u64 (words, rows), values (rows,). The place of a block's first row is computed
// once; if a tile crosses classes, or numbers are large, each thread computes the places of its rows.
extern "C" __global__ void __launch_bounds__(THREADS)
fill_in_order(u64 *keys, VALUE *values, i64 rows, i64 words, i64 start, const Class *classes, i64 class_count,
              const Field *fields, i64 variables, Settings settings) {
    __shared__ Place first;
    __shared__ bool is_short;
    i64 low = (i64)blockIdx.x * TILE, count = rows - low < TILE ? rows - low : TILE;
    if (threadIdx.x == 0) {
        first = place_of(start + low, classes, class_count, settings);
        Place last = place_of(start + low + count - 1, classes, class_count, settings);
        Class found = range_of(classes, class_count, &Class::first, first.rank);
        is_short = first.many < SHORT && settings.half < SHORT && settings.stride < SHORT &&
                   found.first == range_of(classes, class_count, &Class::first, last.rank).first;
    }
    __syncthreads();
    for (u32 ahead = threadIdx.x; ahead < count; ahead += THREADS) {
        i64 row = low + ahead;
        Place here = is_short ? moved<u32>(first, ahead, settings)
                              : moved<u64>(place_of(start + row, classes, class_count, settings), 0, settings);
        u64 eliminated = 2 * here.part + (here.own & 1), own = here.own * settings.stride + here.rest;
        for (i64 word = 0; word < words; word++) {
            u64 key = 0, group = here.rank;
            if (fields[0].word == word) key |= own << fields[0].shift;
            if (fields[1].word == word) key |= eliminated << fields[1].shift;
            for (i64 variable = 2; variable < variables; variable++) {
                u64 above = variable + 1 < variables ? quotient(group, fields[variable].size) : 0;
                if (fields[variable].word == word)
                    key |= group - above * fields[variable].size << fields[variable].shift;
                group = above;
            }
            keys[word * rows + row] = key;
        }
        u64 base = mixed_base(settings.seed, here.rank);
        values[row] = (VALUE)(term(base, 1) + term(base, 2 + eliminated) + here.turn);
    }
}

// Rows of a result: word w of row r is keys[w * distance + r].
struct Rows { const u64 *keys; const VALUE *values; i64 rows, words, distance; };

__device__ __forceinline__ i64 read_field(const Rows &result, i64 row, const Field &field) {
    return (i64)(result.keys[field.word * result.distance + row] >> field.shift & (u64)field.mask);
}

// Rank of a row's group, from variables `first` and following.
__device__ __forceinline__ i64 read_rank(const Rows &result, i64 row, const Field *fields, i64 first, i64 variables) {
    i64 rank = 0, scale = 1;
    for (i64 variable = first; variable < variables; variable++) {
        rank += read_field(result, row, fields[variable]) * scale;
        scale *= fields[variable].size;
    }
    return rank;
}

// Own value of an index; -1 if the group has none.
__device__ __forceinline__ i64 own_of(i64 number, i64 rank, i64 stride, i64 count) {
    i64 own = (i64)quotient(number, stride);
    return number - own * stride == (i64)rest_of(rank, stride) && own < count ? own : -1;
}

// Sums over a thread's rows: of ones, of row numbers, of their squares, digest; and the number of wrong rows.
struct Sums {
    u64 found[5];

    // Add a row; `number` -1: the row is wrong.
    __device__ __forceinline__ void add(const Rows &result, i64 row, i64 number) {
        u64 word = finalised((u64)(i64)result.values[row]);
        for (i64 place = 0; place < result.words; place++)
            word = finalised(word ^ result.keys[place * result.distance + row]);
        found[0] += 1;
        found[1] += (u64)number;
        found[2] += (u64)number * (u64)number;
        found[3] += word;
        found[4] += number < 0;
    }

    // Add the sums of all threads to `sums`, u64 (5,).
    __device__ __forceinline__ void add_to(u64 *sums) {
        for (int place = 0; place < 5; place++) {
            u64 sum = found[place];
            for (int step = 16; step; step /= 2) sum += __shfl_down_sync(ALL_LANES, sum, step);
            if (lane_number() == 0 && sum) atomicAdd(sums + place, sum);
        }
    }
};

struct Table { const Class *classes; i64 class_count; };
struct Pieces { const Piece *pieces; i64 count; };

__device__ __forceinline__ i64 own_count(const Table &table, i64 rank) {
    return range_of(table.classes, table.class_count, &Class::first, rank).count;
}

// Number of a row of a join, or -1 if the row is wrong. fields: of own value 1, own value 2, e unless it was
// eliminated, and the group's variables.
__device__ __forceinline__ i64
joined_number(const Rows &result, i64 row, const Field *fields, i64 variables, const Table &table1, const Table &table2,
              const Pieces &pieces, const Settings &one, const Settings &two, i64 eliminates) {
    i64 rank = read_rank(result, row, fields, eliminates ? 2 : 3, variables);
    if (rank >= one.groups) return -1;
    i64 count1 = own_count(table1, rank), count2 = own_count(table2, rank);
    i64 own1 = own_of(read_field(result, row, fields[0]), rank, one.stride, count1);
    i64 own2 = own_of(read_field(result, row, fields[1]), rank, two.stride, count2);
    if (own1 < 0 || own2 < 0 || (own1 ^ own2) & 1) return -1;
    i64 parity = own1 & 1, half = one.half;
    i64 even1 = (count1 + 1) >> 1, even2 = (count2 + 1) >> 1, many2 = parity ? count2 >> 1 : even2;
    i64 pair = (own1 >> 1) * many2 + (own2 >> 1) + (parity ? even1 * even2 : 0);
    u64 base1 = mixed_base(one.seed, rank), base2 = mixed_base(two.seed, rank);
    i64 expected = term(base1, 1) + term(base2, 1) + rest_of(own1 + rank, count1) + rest_of(own2 + rank, count2);
    i64 part = 0, rows_a_pair = 1;
    if (eliminates) {
        u32 best = 0;
        for (i64 e = parity; e < 2 * half; e += 2) {
            u32 sum = term(base1, 2 + e) + term(base2, 2 + e);
            if (sum > best) best = sum;
        }
        expected += best;
    } else {
        i64 e = read_field(result, row, fields[2]);
        part = e >> 1;
        rows_a_pair = half;
        if ((e & 1) != parity || part >= half) return -1;
        expected += term(base1, 2 + e) + term(base2, 2 + e);
    }
    if (result.values[row] != expected) return -1;
    Piece piece = range_of(pieces.pieces, pieces.count, &Piece::first, rank);
    return (piece.before + (rank - piece.first) * piece.count + pair) * rows_a_pair + part;
}

// Check rows of a join, with e marginalised out if `eliminates`, and add their sums to sums u64 (5,).
extern "C" __global__ void __launch_bounds__(THREADS)
check_join(Rows result, const Field *fields, i64 variables, Table table1, Table table2, Settings settings1,
           Settings settings2, Pieces pieces, i64 eliminates, u64 *sums) {
    Sums own = {};
    for (i64 row = (i64)blockIdx.x * THREADS + threadIdx.x; row < result.rows; row += (i64)gridDim.x * THREADS)
        own.add(result, row, joined_number(result, row, fields, variables, table1, table2, pieces, settings1,
                                           settings2, eliminates));
    own.add_to(sums);
}

// Number of a row of a marginalisation over the own variable, or -1. fields: of e and of the group's variables.
__device__ __forceinline__ i64
reduced_number(const Rows &result, i64 row, const Field *fields, i64 variables, const Table &table,
               const Pieces &pieces, const Settings &settings) {
    i64 rank = read_rank(result, row, fields, 1, variables), e = read_field(result, row, fields[0]);
    if (rank >= settings.groups || e >= 2 * settings.half) return -1;
    // Largest term of an own value among those of the parity.
    i64 count = own_count(table, rank), turn = (i64)rest_of(rank, count), best = -1;
    for (i64 back = 0; back < 3 && back < count && best < 0; back++) {
        i64 own = 2 * count - 1 - back - turn;
        if (own >= count) own -= count;
        if ((own & 1) == (e & 1)) best = count - 1 - back;
    }
    u64 base = mixed_base(settings.seed, rank);
    if (best < 0 || result.values[row] != term(base, 1) + best + term(base, 2 + e)) return -1;
    Piece piece = range_of(pieces.pieces, pieces.count, &Piece::first, rank);
    return piece.before + (rank - piece.first) * piece.count + (piece.count > settings.half ? e : e >> 1);
}

// Check rows of a marginalisation, and add their sums to sums u64 (5,).
extern "C" __global__ void __launch_bounds__(THREADS)
check_maximum(Rows result, const Field *fields, i64 variables, Table table, Settings settings, Pieces pieces,
              u64 *sums) {
    Sums own = {};
    for (i64 row = (i64)blockIdx.x * THREADS + threadIdx.x; row < result.rows; row += (i64)gridDim.x * THREADS)
        own.add(result, row, reduced_number(result, row, fields, variables, table, pieces, settings));
    own.add_to(sums);
}
