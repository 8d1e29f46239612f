// The kernels' header of this name for a CPU: the threads of a block take turns, and wait at barriers as on a GPU.
// The order of the warps changes from round to round, so that results change with it where a barrier is missing.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include <csetjmp>
#include <ucontext.h>

#define __device__
#define __global__
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x, unsigned y, unsigned z) : x(x), y(y), z(z) {}
};
struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct uchar2 {
    unsigned char x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

constexpr unsigned WARP_SIZE = 32;
static dim3 threadIdx(0, 0, 0), blockIdx(0, 0, 0), gridDim(0, 0, 0);

// The blocks of a cluster, often a single one. Each thread has a stack of its own.
struct Cluster {
    static constexpr size_t STACK_BYTES = 1 << 18;
    static constexpr size_t ALIGNMENT = 128;  // of shared memory
    std::vector<ucontext_t> contexts;  // by thread, as are the vectors below
    std::vector<std::array<jmp_buf, 1>> resume_points;  // jumps need no system call, switches of contexts do
    std::vector<bool> started;
    std::vector<bool> finished;
    std::vector<int64_t> barriers;            // how many barriers of its block or cluster a thread has reached
    std::vector<int64_t> warp_barriers;       // how many operations of its warp
    std::vector<int64_t> warpgroup_barriers;  // how many barriers of its warpgroup
    std::vector<uint64_t> shuffled;           // the value that a thread passes to the others of its warp
    std::vector<std::vector<unsigned char>> shared_memories;  // by block
    int block_size;  // threads of a block
    ucontext_t main;
    jmp_buf scheduler;
    int current = 0;  // the thread that runs
    std::function<void()> body;

    Cluster(int blocks, int threads, int shared_bytes, std::function<void()> body)
        : contexts(blocks * threads), resume_points(blocks * threads), started(blocks * threads),
          finished(blocks * threads), barriers(blocks * threads), warp_barriers(blocks * threads),
          warpgroup_barriers(blocks * threads), shuffled(blocks * threads),
          // Not zeros: kernels must not rely on the initial content.
          shared_memories(blocks, std::vector<unsigned char>(shared_bytes + ALIGNMENT, 0xff)), block_size(threads),
          body(std::move(body)) {}

    int size() const { return static_cast<int>(contexts.size()); }
    int rank() const { return current / block_size; }

    void yield() {
        if (_setjmp(resume_points[current][0]) == 0) _longjmp(scheduler, 1);
    }

    void resume(int thread) {
        current = thread;
        if (_setjmp(scheduler) != 0) return;
        if (started[thread]) _longjmp(resume_points[thread][0], 1);
        started[thread] = true;
        swapcontext(&main, &contexts[thread]);
    }

    // Counts that this thread has reached a barrier, and waits until threads `first` to `last` have.
    void wait_at(std::vector<int64_t>& reached, int first, int last) {
        const int64_t count = ++reached[current];
        for (bool all = false; !all;) {
            all = true;
            for (int i = first; i < last; ++i) all = all && (finished[i] || reached[i] >= count);
            if (!all) yield();
        }
    }
};
static Cluster* cluster;
static std::vector<std::unique_ptr<char[]>> stacks;  // of threads, used by one cluster after the other

inline unsigned char* shared_memory_of(int rank) {
    auto& memory = cluster->shared_memories[rank];
    const size_t misaligned = reinterpret_cast<uintptr_t>(memory.data()) % Cluster::ALIGNMENT;
    return memory.data() + (Cluster::ALIGNMENT - misaligned) % Cluster::ALIGNMENT;
}

inline unsigned char* shared_memory() { return shared_memory_of(cluster->rank()); }

// Whether bytes lie in the shared memory of the block.
inline bool is_shared(const void* start, size_t bytes) {
    const auto* from = static_cast<const unsigned char*>(start);
    const auto& memory = cluster->shared_memories[cluster->rank()];
    return from >= shared_memory() && from + bytes <= memory.data() + memory.size();
}

inline void sync_threads() {
    const int first = cluster->rank() * cluster->block_size;
    cluster->wait_at(cluster->barriers, first, first + cluster->block_size);
}

// Returns the values that all threads of the warp pass.
inline std::array<uint64_t, WARP_SIZE> exchange(uint64_t value) {
    const int first = cluster->current / WARP_SIZE * WARP_SIZE;
    cluster->shuffled[cluster->current] = value;
    cluster->wait_at(cluster->warp_barriers, first, first + WARP_SIZE);
    std::array<uint64_t, WARP_SIZE> values;
    std::copy_n(cluster->shuffled.begin() + first, WARP_SIZE, values.begin());
    cluster->wait_at(cluster->warp_barriers, first, first + WARP_SIZE);  // before anyone passes the next value
    return values;
}

inline uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

inline float as_float(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

inline float shuffle_xor(float value, int lane_mask) {
    return as_float(static_cast<uint32_t>(exchange(bits_of(value))[(cluster->current % WARP_SIZE) ^ lane_mask]));
}

using SharedAddress = const unsigned char*;

inline SharedAddress shared_address(const void* pointer) { return static_cast<SharedAddress>(pointer); }

inline void ldmatrix(uint32_t (&fragment)[4], SharedAddress row, bool transposed) {
    const auto rows = exchange(reinterpret_cast<uint64_t>(row));
    const int lane = cluster->current % WARP_SIZE;
    for (int i = 0; i < WARP_SIZE; ++i) {
        if (rows[i] % 16 || !is_shared(reinterpret_cast<const void*>(rows[i]), 16)) {
            throw std::runtime_error("ldmatrix: a row is not in shared memory, or not aligned");
        }
    }
    for (int matrix = 0; matrix < 4; ++matrix) {
        for (int half = 0; half < 2; ++half) {
            const int column = lane % 4 * 2 + half, row = lane / 4;
            const auto* from = reinterpret_cast<const uint16_t*>(rows[matrix * 8 + (transposed ? column : row)]);
            const uint32_t element = from[transposed ? row : column];
            fragment[matrix] = half ? fragment[matrix] | element << 16 : element;
        }
    }
}

inline void ldmatrix_x4(uint32_t (&fragment)[4], SharedAddress row) { ldmatrix(fragment, row, false); }
inline void ldmatrix_x4_transposed(uint32_t (&fragment)[4], SharedAddress row) { ldmatrix(fragment, row, true); }

inline float unpack_low(uint32_t pair) { return as_float(pair << 16); }
inline float unpack_high(uint32_t pair) { return as_float(pair & 0xffff0000u); }

// Rounds to the nearest bfloat16, to even between two.
inline uint32_t to_bf16(float value) {
    const uint32_t bits = bits_of(value);
    if (value != value) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline uint32_t pack_bf16(float low, float high) { return to_bf16(low) | to_bf16(high) << 16; }

inline void mma_m16n8k16(float (&accumulator)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    float a_matrix[16][16], b_matrix[16][8];
    const auto join = [](uint32_t low, uint32_t high) { return low | static_cast<uint64_t>(high) << 32; };
    const std::array<uint64_t, WARP_SIZE> fragments[] = {exchange(join(a[0], a[1])), exchange(join(a[2], a[3])),
                                                         exchange(join(b0, b1))};
    for (int lane = 0; lane < WARP_SIZE; ++lane) {
        const int row = lane / 4, column = lane % 4 * 2;
        const auto put = [&](int row, int column, uint64_t pair) {
            a_matrix[row][column] = unpack_low(static_cast<uint32_t>(pair));
            a_matrix[row][column + 1] = unpack_high(static_cast<uint32_t>(pair));
        };
        put(row, column, fragments[0][lane]);
        put(row + 8, column, fragments[0][lane] >> 32);
        put(row, column + 8, fragments[1][lane]);
        put(row + 8, column + 8, fragments[1][lane] >> 32);
        b_matrix[column][row] = unpack_low(static_cast<uint32_t>(fragments[2][lane]));
        b_matrix[column + 1][row] = unpack_high(static_cast<uint32_t>(fragments[2][lane]));
        b_matrix[column + 8][row] = unpack_low(static_cast<uint32_t>(fragments[2][lane] >> 32));
        b_matrix[column + 9][row] = unpack_high(static_cast<uint32_t>(fragments[2][lane] >> 32));
    }
    const int lane = cluster->current % WARP_SIZE;
    for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
        for (int k = 0; k < 16; ++k) accumulator[i] += a_matrix[row][k] * b_matrix[k][column];
    }
}

inline void cp_async(void* to, const void* from) { std::memcpy(to, from, 16); }
inline void cp_async_wait_all() {}

inline float max_nan(float a, float b) { return a != a || a > b ? a : b; }

inline float fast_exp2(float x) { return std::exp2(x); }
inline float fast_reciprocal(float x) { return 1 / x; }

inline void prefetch_l2(const void*) {}

inline int max_shared_memory(int device) { return device; }  // tests pass it as the number of the device

inline void run_thread() {
    cluster->body();
    cluster->finished[cluster->current] = true;
    cluster->yield();
}

// Runs the clusters of a grid, each of so many blocks, one after the other.
template <typename Kernel, typename... Arguments>
int launch_clusters(int blocks, Kernel kernel, dim3 grid, int threads, int shared_bytes, Arguments... arguments) {
    gridDim = grid;
    for (unsigned y = 0; y < grid.y; ++y) {
        for (unsigned x = 0; x < grid.x; x += blocks) {
            Cluster running(blocks, threads, shared_bytes, [&] { kernel(arguments...); });
            cluster = &running;
            while (static_cast<int>(stacks.size()) < running.size()) {
                stacks.emplace_back(new char[Cluster::STACK_BYTES]);
            }
            for (int i = 0; i < running.size(); ++i) {
                ucontext_t& context = running.contexts[i];
                getcontext(&context);
                context.uc_stack.ss_sp = stacks[i].get();
                context.uc_stack.ss_size = Cluster::STACK_BYTES;
                context.uc_link = nullptr;
                makecontext(&context, run_thread, 0);
            }
            std::vector<int> warps(running.size() / WARP_SIZE);
            std::iota(warps.begin(), warps.end(), 0);
            std::minstd_rand draws(1);
            for (int left = running.size(); left > 0;) {
                left = 0;
                std::shuffle(warps.begin(), warps.end(), draws);
                for (int turn = 0; turn < running.size(); ++turn) {
                    const int thread = warps[turn / WARP_SIZE] * WARP_SIZE + turn % WARP_SIZE;
                    if (running.finished[thread]) continue;
                    threadIdx.x = thread % threads;
                    blockIdx = dim3(x + thread / threads, y, 0);
                    running.resume(thread);
                    left += !running.finished[thread];
                }
            }
        }
    }
    return 0;
}

template <typename Kernel, typename... Arguments>
int launch(Kernel kernel, dim3 grid, int threads, int shared_bytes, void*, Arguments... arguments) {
    return launch_clusters(1, kernel, grid, threads, shared_bytes, arguments...);
}
