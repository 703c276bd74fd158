// What follows a join on the device in its peer: the sum of two value columns, CUB's sort by the group's key, and CUB's
// maximum of each group. Usage: join_tail ROWS; prints milliseconds (median of six) for keys of 4 and 8 bytes.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cub/cub.cuh>
#include <vector>

#define CHECK(call) \
    if (cudaError_t code = (call)) { fprintf(stderr, "%s\n", cudaGetErrorString(code)); exit(1); }

template <typename Key>
__global__ void make(Key *keys, int *a, int *b, long rows, int bits) {
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < rows; i += (long)gridDim.x * blockDim.x) {
        unsigned long long hash = (i + 1) * 0x9E3779B97F4A7C15ull;
        hash = (hash ^ hash >> 31) * 0xBF58476D1CE4E5B9ull;
        hash ^= hash >> 29;
        keys[i] = (Key)(hash >> (64 - bits));
        a[i] = hash & 1023;
        b[i] = hash >> 40 & 1023;
    }
}

__global__ void add(const int *a, const int *b, int *out, long rows) {
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < rows; i += (long)gridDim.x * blockDim.x)
        out[i] = a[i] + b[i];
}

struct Max {
    __device__ int operator()(int a, int b) const { return a > b ? a : b; }
};

template <typename Key>
float measured(long rows, int bits) {
    Key *keys, *sorted;
    int *a, *b, *values, *sorted_values, *groups;
    void *temporary;
    size_t sort_bytes = 0, reduce_bytes = 0;
    CHECK(cudaMalloc(&keys, rows * sizeof(Key)));
    CHECK(cudaMalloc(&sorted, rows * sizeof(Key)));
    for (int **column : {&a, &b, &values, &sorted_values}) CHECK(cudaMalloc(column, 4 * rows));
    CHECK(cudaMalloc(&groups, 4));
    cub::DeviceRadixSort::SortPairs(nullptr, sort_bytes, keys, sorted, values, sorted_values, rows, 0, bits);
    cub::DeviceReduce::ReduceByKey(nullptr, reduce_bytes, sorted, keys, sorted_values, values, groups, Max(), rows);
    CHECK(cudaMalloc(&temporary, std::max(sort_bytes, reduce_bytes)));
    std::vector<float> found;
    cudaEvent_t begin, end;
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
    for (int i = 0; i < 6; i++) {
        make<<<2048, 256>>>(keys, a, b, rows, bits);
        cudaEventRecord(begin);
        add<<<2048, 256>>>(a, b, values, rows);
        cub::DeviceRadixSort::SortPairs(temporary, sort_bytes, keys, sorted, values, sorted_values, rows, 0, bits);
        cub::DeviceReduce::ReduceByKey(temporary, reduce_bytes, sorted, keys, sorted_values, values, groups, Max(), rows);
        cudaEventRecord(end);
        CHECK(cudaEventSynchronize(end));
        float milliseconds;
        cudaEventElapsedTime(&milliseconds, begin, end);
        found.push_back(milliseconds);
    }
    for (void *memory : {(void *)keys, (void *)sorted, (void *)a, (void *)b, (void *)values, (void *)sorted_values,
                         (void *)groups, temporary})
        cudaFree(memory);
    std::sort(found.begin(), found.end());
    return found[3];
}

int main(int count, char **arguments) {
    long rows = count > 1 ? atol(arguments[1]) : 1 << 27;
    printf("%.3f %.3f\n", measured<unsigned>(rows, 32), measured<unsigned long long>(rows, 40));
}
