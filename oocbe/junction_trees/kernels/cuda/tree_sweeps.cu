// Sweeps over a junction tree for a block of cases: messages up to the roots, probabilities down again.
// variants: CASES=1|2|4
#include "integers.cuh"

// CASES: cases that a thread computes, 32 apart, so that a warp reads neighbouring numbers. Arrays over cases have rows
// of `stride` numbers, a multiple of 32 * CASES; those behind the last case are computed with the others, of nothing
// observed, and never read.
//
// Every sum is one thread's, in the order of its entries. Long ones are cut into chunks, whose sums are added up in
// their order: no result depends on how threads are scheduled.

#define THREADS 128
#define WARPS_A_CLIQUE 16
#define TILE (32 * CASES)
// Rows of a clique that a thread has messages of on their way at a time.
#define ROWS 4

// As in oocbe.junction_trees.kernels.cpu.sweeps: 2^-100, 2^100, and 2^-600.
#define LEAST 7.888609052210118e-31
#define GREATEST 1.2676506002282294e+30
#define TINY 2.409919865102884e-181

// Kinds of edges that are written to.
#define VARIABLE 0
#define CHILD 1
#define CONSTANT_CHILD 2

struct Tree {
    const double *weights;
    const int *maps;
    const int *list_rows;  // of each edge, row numbers within the clique, by the message's row that they are about
    const i64 *message_start;
    const double *norms;
    // Chunks of the sums up, one a row of a separator or more: entries are rows of cliques.
    const i64 *up_first, *up_row, *up_partial, *up_split_row, *up_split_first;
    const i64 *clique_chunks, *clique_splits;
    // Chunks of the sums down: entries are places of list_rows.
    const i64 *down_first, *down_row, *down_partial, *down_split_row, *down_split_first;
    // What cliques send where nothing is observed below them, for all cases alike.
    const double *prior, *prior_peaks, *prior_losses, *prior_logs, *prior_scales;
    i64 cliques;
};

// What a sweep visits, level by level. A complement (~x) stands for what is alike for all cases.
struct Steps {
    const i64 *clique;
    const i64 *chunks;  // before each step, of all steps
    const i64 *read_start, *read_map, *read_message, *read_sender;
    const i64 *belief;  // of each step, where its first row is among those of the stretch, less its number
    // Edges written to.
    const i64 *write_chunks, *write_chunk, *write_splits, *write_split;
    const i64 *write_belief, *write_scale, *write_kind;
};

// Arrays over cases.
struct Block {
    double *up, *down;  // (message rows, stride)
    double *partial, *belief;  // (chunks of split sums, stride), (rows of a stretch, stride)
    double *peaks, *losses, *logs, *scales;  // (cliques, stride)
    i64 stride;
};

// Which step and which of its parts a warp works on, and for which case its thread begins.
struct Part { i64 step, number, place; };

// False for warps behind the last one. before i64: parts before each step of all; a tile of cases after the other, so
// that warps that run at a time read messages of the same cases.
__device__ __forceinline__ bool find_part(const i64 *before, i64 first, i64 last, i64 stride, Part &part) {
    i64 warp = ((i64)blockIdx.x * blockDim.x + threadIdx.x) >> 5;
    i64 count = before[last] - before[first];
    i64 tile = warp / count;
    if (tile * TILE >= stride) return false;
    i64 number = before[first] + warp % count;
    part.step = upper_bound(before, first, last + 1, number) - 1;
    part.number = number - before[part.step];
    part.place = tile * TILE + lane_number();
    return true;
}

// Weights of up to ROWS rows, multiplied by what all messages into the clique say of them.
__device__ __forceinline__ void multiply(const Tree &tree, const Steps &steps, const Block &block, const Part &part,
                                         i64 row, i64 end, double product[ROWS][CASES]) {
    #pragma unroll
    for (int r = 0; r < ROWS; r++) {
        double weight = row + r < end ? tree.weights[row + r] : 0.0;
        #pragma unroll
        for (int k = 0; k < CASES; k++) product[r][k] = weight;
    }
    i64 last = steps.read_start[part.step + 1];
    for (i64 e = steps.read_start[part.step]; e < last; e++) {
        const int *map = tree.maps + (steps.read_map[e] + row);
        i64 message = steps.read_message[e];
        if (message >= 0) {
            const double *from = block.up + message * block.stride + part.place;
            #pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (row + r >= end) continue;
                const double *numbers = from + map[r] * block.stride;
                #pragma unroll
                for (int k = 0; k < CASES; k++) product[r][k] *= numbers[32 * k];
            }
        } else {
            const double *from = tree.prior + ~message;
            #pragma unroll
            for (int r = 0; r < ROWS; r++) {
                if (row + r >= end) continue;
                double number = from[map[r]];
                #pragma unroll
                for (int k = 0; k < CASES; k++) product[r][k] *= number;
            }
        }
    }
}

// Messages of the cliques of a level, not yet scaled; a warp a chunk of a sum and TILE cases. Children have sent theirs.
extern "C" __global__ void __launch_bounds__(THREADS)
collect(const __grid_constant__ Tree tree, const __grid_constant__ Steps steps, const __grid_constant__ Block block,
        i64 first, i64 last) {
    Part part;
    if (!find_part(steps.chunks, first, last, block.stride, part)) return;
    i64 chunk = tree.clique_chunks[steps.clique[part.step]] + part.number;
    i64 end = tree.up_first[chunk + 1];
    double sum[CASES];
    #pragma unroll
    for (int k = 0; k < CASES; k++) sum[k] = 0.0;
    for (i64 row = tree.up_first[chunk]; row < end; row += ROWS) {
        double product[ROWS][CASES];
        multiply(tree, steps, block, part, row, end, product);
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (row + r >= end) continue;
            #pragma unroll
            for (int k = 0; k < CASES; k++) sum[k] += product[r][k];
        }
    }
    i64 partial = tree.up_partial[chunk];
    double *to = partial < 0 ? block.up + tree.up_row[chunk] * block.stride : block.partial + partial * block.stride;
    #pragma unroll
    for (int k = 0; k < CASES; k++) to[part.place + 32 * k] = sum[k];
}

// What is left of a level's messages: sums that were split, greatest numbers, bounds of what was lost, and scaling. A
// block a clique and 32 cases.
extern "C" __global__ void __launch_bounds__(32 * WARPS_A_CLIQUE)
settle(const __grid_constant__ Tree tree, const __grid_constant__ Steps steps, const __grid_constant__ Block block,
       i64 first, i64 last) {
    __shared__ double greatest[WARPS_A_CLIQUE][32];
    i64 count = last - first, warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    i64 step = first + (i64)blockIdx.x % count, c = steps.clique[step];
    i64 stride = block.stride, b = (i64)blockIdx.x / count * 32 + lane;
    for (i64 split = tree.clique_splits[c] + warp; split < tree.clique_splits[c + 1]; split += WARPS_A_CLIQUE) {
        double sum = 0.0;
        i64 behind = tree.up_split_first[split + 1];
        #pragma unroll 4
        for (i64 p = tree.up_split_first[split]; p < behind; p++) sum += block.partial[p * stride + b];
        block.up[tree.up_split_row[split] * stride + b] = sum;
    }
    __syncthreads();
    i64 begin = tree.message_start[c], end = tree.message_start[c + 1];
    double peak = 0.0;
    for (i64 row = begin + warp; row < end; row += WARPS_A_CLIQUE) {
        double number = block.up[row * stride + b];
        if (number > peak) peak = number;
    }
    greatest[warp][lane] = peak;
    __syncthreads();
    for (int w = 0; w < WARPS_A_CLIQUE; w++) {
        if (greatest[w][lane] > peak) peak = greatest[w][lane];
    }
    double scale = peak > 0.0 && (peak < LEAST || peak > GREATEST) ? 1.0 / peak : 1.0;
    if (scale != 1.0) {
        for (i64 row = begin + warp; row < end; row += WARPS_A_CLIQUE) block.up[row * stride + b] *= scale;
    }
    if (warp != 0) return;
    double total = 0.0, bound = tree.norms[c];
    for (i64 e = steps.read_start[step]; e < steps.read_start[step + 1]; e++) {
        i64 sender = steps.read_sender[e];
        if (sender >= tree.cliques) continue;  // a variable or an input: nothing lost, and the greatest number is 1
        total += sender >= 0 ? block.losses[sender * stride + b] : tree.prior_losses[~sender];
        bound *= sender >= 0 ? block.peaks[sender * stride + b] : tree.prior_peaks[~sender];
    }
    i64 at = c * stride + b;
    double lost = (bound * total + (double)(end - begin) * TINY) / peak;
    block.losses[at] = peak > 0.0 ? lost : __longlong_as_double(0x7FF0000000000000ll);
    block.logs[at] = scale != 1.0 ? log(peak) : 0.0;
    block.peaks[at] = scale != 1.0 ? 1.0 : peak;
    block.scales[at] = scale;
}

// Logarithms of evidence, what may be lost of it, and the reciprocals of the roots' messages: 0 for cases that are
// impossible or lost too much. A thread a case; found f64 (2, stride), written; collected i64 (cliques,), whether a
// clique's message is computed by case.
extern "C" __global__ void __launch_bounds__(THREADS)
weigh(const __grid_constant__ Tree tree, const __grid_constant__ Block block, const i64 *collected, const i64 *roots,
      i64 root_count, double logarithm, double negligible, double *found) {
    i64 stride = block.stride, b = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (b >= stride) return;
    double logs = 0.0, at_roots = 0.0, lost = 0.0;
    bool is_possible = true;
    for (i64 c = 0; c < tree.cliques; c++) logs += collected[c] ? block.logs[c * stride + b] : tree.prior_logs[c];
    for (i64 i = 0; i < root_count; i++) {
        i64 root = roots[i], row = tree.message_start[root];
        double number = collected[root] ? block.up[row * stride + b] : tree.prior[row];
        is_possible = is_possible && number > 0.0;
        at_roots += log(number);
        lost += collected[root] ? block.losses[root * stride + b] : tree.prior_losses[root];
    }
    found[b] = logarithm + logs + at_roots;
    found[stride + b] = lost;
    bool is_taken = is_possible && lost <= negligible;
    for (i64 i = 0; i < root_count; i++) {
        i64 root = roots[i], row = tree.message_start[root];
        double number = collected[root] ? block.up[row * stride + b] : tree.prior[row];
        block.down[row * stride + b] = is_taken ? 1.0 / number : 0.0;
    }
}

// Probabilities of the rows of a stretch's cliques, each relative to its clique's scale; a warp a chunk and TILE cases.
extern "C" __global__ void __launch_bounds__(THREADS)
believe(const __grid_constant__ Tree tree, const __grid_constant__ Steps steps, const __grid_constant__ Block block,
        i64 first, i64 last) {
    Part part;
    if (!find_part(steps.chunks, first, last, block.stride, part)) return;
    i64 chunk = tree.clique_chunks[steps.clique[part.step]] + part.number;
    i64 end = tree.up_first[chunk + 1];
    const double *from = block.down + tree.up_row[chunk] * block.stride + part.place;
    double *to = block.belief + steps.belief[part.step] * block.stride + part.place;
    double above[CASES];
    #pragma unroll
    for (int k = 0; k < CASES; k++) above[k] = from[32 * k];
    for (i64 row = tree.up_first[chunk]; row < end; row += ROWS) {
        double product[ROWS][CASES];
        multiply(tree, steps, block, part, row, end, product);
        #pragma unroll
        for (int r = 0; r < ROWS; r++) {
            if (row + r >= end) continue;
            #pragma unroll
            for (int k = 0; k < CASES; k++) to[(row + r) * block.stride + 32 * k] = product[r][k] * above[k];
        }
    }
}

// A sum over rows of a clique is the share of a message's row; a child gets the ratio of the share to the child's message.
__device__ __forceinline__ void write_share(const Tree &tree, const Steps &steps, const Block &block, i64 write, i64 row,
                                            i64 place, const double sum[CASES]) {
    i64 scaled = steps.write_scale[write], kind = steps.write_kind[write];
    #pragma unroll
    for (int k = 0; k < CASES; k++) {
        i64 b = place + 32 * k, at = row * block.stride + b;
        double share = sum[k] * (scaled >= 0 ? block.scales[scaled * block.stride + b] : tree.prior_scales[~scaled]);
        if (kind == VARIABLE) {
            block.down[at] = share;
        } else {
            double upward = kind == CHILD ? block.up[at] : tree.prior[row];
            block.down[at] = share > 0.0 ? share / upward : 0.0;
        }
    }
}

// Messages down and shares of variables' values, of edges of a stretch's cliques; a warp a chunk of a sum and TILE cases.
extern "C" __global__ void __launch_bounds__(THREADS)
add_up(const __grid_constant__ Tree tree, const __grid_constant__ Steps steps, const __grid_constant__ Block block,
       i64 first, i64 last) {
    Part part;
    if (!find_part(steps.write_chunks, first, last, block.stride, part)) return;
    i64 chunk = steps.write_chunk[part.step] + part.number;
    i64 end = tree.down_first[chunk + 1];
    const double *from = block.belief + steps.write_belief[part.step] * block.stride + part.place;
    double sum[CASES];
    #pragma unroll
    for (int k = 0; k < CASES; k++) sum[k] = 0.0;
    #pragma unroll 4
    for (i64 i = tree.down_first[chunk]; i < end; i++) {
        const double *numbers = from + tree.list_rows[i] * block.stride;
        #pragma unroll
        for (int k = 0; k < CASES; k++) sum[k] += numbers[32 * k];
    }
    i64 partial = tree.down_partial[chunk];
    if (partial < 0) {
        write_share(tree, steps, block, part.step, tree.down_row[chunk], part.place, sum);
        return;
    }
    #pragma unroll
    for (int k = 0; k < CASES; k++) block.partial[partial * block.stride + part.place + 32 * k] = sum[k];
}

// The same for sums that were split, from those of their chunks.
extern "C" __global__ void __launch_bounds__(THREADS)
add_up_splits(const __grid_constant__ Tree tree, const __grid_constant__ Steps steps,
              const __grid_constant__ Block block, i64 first, i64 last) {
    Part part;
    if (!find_part(steps.write_splits, first, last, block.stride, part)) return;
    i64 split = steps.write_split[part.step] + part.number;
    double sum[CASES];
    #pragma unroll
    for (int k = 0; k < CASES; k++) sum[k] = 0.0;
    i64 end = tree.down_split_first[split + 1];
    #pragma unroll 4
    for (i64 p = tree.down_split_first[split]; p < end; p++) {
        const double *numbers = block.partial + p * block.stride + part.place;
        #pragma unroll
        for (int k = 0; k < CASES; k++) sum[k] += numbers[32 * k];
    }
    write_share(tree, steps, block, part.step, tree.down_split_row[split], part.place, sum);
}

// What is observed: 1 for the rows of each value that a case may have, else 0. observed i64 (cases, width), values,
// negative where a case does not observe a variable; columns i64 (variables,), those to be entered; start i64
// (variables, 2), where the rows of each begin and end.
extern "C" __global__ void __launch_bounds__(THREADS)
enter(const __grid_constant__ Block block, const i64 *observed, i64 cases, i64 width, const i64 *columns,
      const i64 *start, i64 variables) {
    i64 thread = (i64)blockIdx.x * THREADS + threadIdx.x;
    if (thread >= variables * block.stride) return;
    i64 v = thread / block.stride, b = thread % block.stride;
    i64 code = b < cases ? observed[b * width + columns[v]] : -1;
    i64 begin = start[2 * v], end = start[2 * v + 1];
    for (i64 row = begin; row < end; row++)
        block.up[row * block.stride + b] = code < 0 || row - begin == code ? 1.0 : 0.0;
}

// Posteriors of targets, made to add up to 1, 0 where nothing is possible; a warp a target and 32 cases.
// value_start i64 (targets + 1,): the values of each. row_first i64 (values + 1,), rows i64: the message rows that each
// value's share is the sum of. kinds i64 (targets,): of their edges. out f64 (values, stride).
extern "C" __global__ void __launch_bounds__(THREADS)
take(const __grid_constant__ Tree tree, const __grid_constant__ Block block, const i64 *value_start,
     const i64 *row_first, const i64 *rows, const i64 *kinds, i64 targets, double *out) {
    i64 warp = ((i64)blockIdx.x * THREADS + threadIdx.x) >> 5, stride = block.stride;
    i64 t = warp % targets, b = warp / targets * 32 + lane_number();
    if (b >= stride) return;
    i64 kind = kinds[t];
    double total = 0.0;
    for (i64 value = value_start[t]; value < value_start[t + 1]; value++) {
        double sum = 0.0;
        for (i64 i = row_first[value]; i < row_first[value + 1]; i++) {
            i64 row = rows[i];
            double share = block.down[row * stride + b];
            if (kind == CHILD) share *= block.up[row * stride + b];
            if (kind == CONSTANT_CHILD) share *= tree.prior[row];
            sum += share;
        }
        out[value * stride + b] = sum;
        total += sum;
    }
    double factor = total > 0.0 ? 1.0 / total : 0.0;
    for (i64 value = value_start[t]; value < value_start[t + 1]; value++) out[value * stride + b] *= factor;
}
