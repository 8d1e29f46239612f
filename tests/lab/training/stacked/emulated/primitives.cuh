// The header of this name of the kernels, for a CPU: threads of a block take turns, and wait where a GPU has them wait.
// Which warp comes first changes from round to round, so that results change with it where a barrier is missing.
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

constexpr unsigned WARP = 32;
static dim3 threadIdx(0, 0, 0), blockIdx(0, 0, 0), gridDim(0, 0, 0);

// A block of threads, each with a stack of its own, that take turns; or a cluster of several blocks.
struct Block {
    static constexpr size_t STACK = 1 << 18;
    std::vector<ucontext_t> threads;
    std::vector<std::array<jmp_buf, 1>> places;  // where a thread goes on: jumps need no system call, contexts do
    std::vector<bool> begun;
    std::vector<bool> ended;
    std::vector<int64_t> passed;  // how many barriers of the block a thread has come to
    std::vector<int64_t> joined;   // how many operations of its warp
    std::vector<int64_t> grouped;  // and how many barriers of four warps
    int size;  // threads of each block
    std::vector<std::vector<unsigned char>> memories;  // of each block
    std::vector<uint64_t> told;  // what a thread tells the others of its warp
    ucontext_t main;
    jmp_buf scheduler;
    int current = 0;  // thread

    int rank() const { return current / size; }  // of its block in the cluster
    std::vector<unsigned char>& memory() { return memories[rank()]; }

    std::function<void()> body;

    void yield() {
        if (_setjmp(places[current][0]) == 0) _longjmp(scheduler, 1);
    }

    void resume(int thread) {
        current = thread;
        if (_setjmp(scheduler) != 0) return;
        if (begun[thread]) _longjmp(places[thread][0], 1);
        begun[thread] = true;
        swapcontext(&main, &threads[thread]);
    }

    void wait_for(const std::vector<int64_t>& counts, int first, int last) {
        const int64_t mine = counts[current];
        for (bool all = false; !all;) {
            all = true;
            for (int i = first; i < last; ++i) all = all && (ended[i] || counts[i] >= mine);
            if (!all) yield();
        }
    }
};
static Block* block;
static std::vector<std::unique_ptr<char[]>> stacks;  // of threads, for one block after the other

inline unsigned char* shared_memory_of(int rank) {
    auto& memory = block->memories[rank];
    return memory.data() + (128 - reinterpret_cast<uintptr_t>(memory.data()) % 128) % 128;
}

inline unsigned char* shared_memory() { return shared_memory_of(block->rank()); }

// Whether bytes lie in the shared memory of the block.
inline bool is_shared(const void* begin, size_t bytes) {
    const auto* from = static_cast<const unsigned char*>(begin);
    return from >= shared_memory() && from + bytes <= block->memory().data() + block->memory().size();
}

inline void synchronize() {
    const int first = block->rank() * block->size;
    ++block->passed[block->current];
    block->wait_for(block->passed, first, first + block->size);
}

// All threads of a warp come here; each then sees what all have told.
inline std::array<uint64_t, WARP> exchanged(uint64_t mine) {
    Block& own = *block;
    const int first = own.current / WARP * WARP;
    own.told[own.current] = mine;
    ++own.joined[own.current];
    own.wait_for(own.joined, first, first + WARP);
    std::array<uint64_t, WARP> found;
    std::copy_n(own.told.begin() + first, WARP, found.begin());
    ++own.joined[own.current];  // nobody tells anything new before all have read this
    own.wait_for(own.joined, first, first + WARP);
    return found;
}

inline float shuffled(float value, int distance) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const uint32_t found = static_cast<uint32_t>(exchanged(bits)[(block->current % WARP) ^ distance]);
    std::memcpy(&value, &found, 4);
    return value;
}

using Address = const unsigned char*;

inline Address address_of(const void* place) { return static_cast<Address>(place); }

inline void load(uint32_t (&found)[4], Address row, bool transposed) {
    const auto rows = exchanged(reinterpret_cast<uint64_t>(row));
    const int lane = block->current % WARP;
    for (int i = 0; i < WARP; ++i) {
        if (rows[i] % 16 || !is_shared(reinterpret_cast<const void*>(rows[i]), 16)) {
            throw std::runtime_error("a row that is not in shared memory, or not aligned");
        }
    }
    for (int matrix = 0; matrix < 4; ++matrix) {
        for (int half = 0; half < 2; ++half) {
            const int across = lane % 4 * 2 + half, down = lane / 4;
            const auto* from = reinterpret_cast<const uint16_t*>(rows[matrix * 8 + (transposed ? across : down)]);
            const uint32_t entry = from[transposed ? down : across];
            found[matrix] = half ? found[matrix] | entry << 16 : entry;
        }
    }
}

inline void load_matrices(uint32_t (&found)[4], Address row) { load(found, row, false); }
inline void load_matrices_transposed(uint32_t (&found)[4], Address row) { load(found, row, true); }

inline float as_float(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

inline float first_of(uint32_t both) { return as_float(both << 16); }
inline float second_of(uint32_t both) { return as_float(both & 0xffff0000u); }

inline uint32_t rounded(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    if (value != value) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

inline uint32_t packed(float first, float second) { return rounded(first) | rounded(second) << 16; }

inline void multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    float left[16][16], right[16][8];
    const auto both = [](uint32_t low, uint32_t high) { return low | static_cast<uint64_t>(high) << 32; };
    const std::array<uint64_t, WARP> all[] = {exchanged(both(a[0], a[1])), exchanged(both(a[2], a[3])),
                                              exchanged(both(b0, b1))};
    for (int lane = 0; lane < WARP; ++lane) {
        const int row = lane / 4, column = lane % 4 * 2;
        const auto put = [&](int down, int across, uint64_t both) {
            left[down][across] = first_of(static_cast<uint32_t>(both));
            left[down][across + 1] = second_of(static_cast<uint32_t>(both));
        };
        put(row, column, all[0][lane]);
        put(row + 8, column, all[0][lane] >> 32);
        put(row, column + 8, all[1][lane]);
        put(row + 8, column + 8, all[1][lane] >> 32);
        right[column][row] = first_of(static_cast<uint32_t>(all[2][lane]));
        right[column + 1][row] = second_of(static_cast<uint32_t>(all[2][lane]));
        right[column + 8][row] = first_of(static_cast<uint32_t>(all[2][lane] >> 32));
        right[column + 9][row] = second_of(static_cast<uint32_t>(all[2][lane] >> 32));
    }
    const int own = block->current % WARP;
    for (int i = 0; i < 4; ++i) {
        const int row = own / 4 + i / 2 * 8, column = own % 4 * 2 + i % 2;
        for (int k = 0; k < 16; ++k) sum[i] += left[row][k] * right[k][column];
    }
}

inline void copy(void* to, const void* from) { std::memcpy(to, from, 16); }
inline void wait_for_copies() {}

inline float larger(float one, float two) { return one != one || one > two ? one : two; }

inline float exponential(float value) { return std::exp(value); }
inline float quotient(float above, float below) { return above / below; }

inline void prefetch_line(const void*) {}

inline int room_on(int device) { return device; }  // tests say by the number of the device how much there is

inline void enter() {
    block->body();
    block->ended[block->current] = true;
    block->yield();
}

// Runs blocks one after the other, or clusters of so many of them; threads of a cluster take turns.
template <typename Kernel, typename... Arguments>
int launch_clusters(unsigned blocks, Kernel kernel, dim3 grid, int threads, int bytes, Arguments... arguments) {
    gridDim = grid;
    for (unsigned y = 0; y < grid.y; ++y) {
        for (unsigned x = 0; x < grid.x; x += blocks) {
            const int all = threads * blocks;
            Block own;
            block = &own;
            own.size = threads;
            own.threads.resize(all);
            own.places.resize(all);
            own.begun.assign(all, false);
            own.ended.assign(all, false);
            own.passed.assign(all, 0);
            own.joined.assign(all, 0);
            own.grouped.assign(all, 0);
            own.told.assign(all, 0);
            own.memories.assign(blocks, std::vector<unsigned char>(bytes + 128, 0xff));  // nothing may rely on it
            own.body = [&] { kernel(arguments...); };
            while (static_cast<int>(stacks.size()) < all) stacks.emplace_back(new char[Block::STACK]);
            for (int i = 0; i < all; ++i) {
                getcontext(&own.threads[i]);
                own.threads[i].uc_stack.ss_sp = stacks[i].get();
                own.threads[i].uc_stack.ss_size = Block::STACK;
                own.threads[i].uc_link = nullptr;
                makecontext(&own.threads[i], enter, 0);
            }
            std::vector<int> warps(all / WARP);
            std::iota(warps.begin(), warps.end(), 0);
            std::minstd_rand draws(1);
            for (int left = all; left > 0;) {
                left = 0;
                std::shuffle(warps.begin(), warps.end(), draws);
                for (int turn = 0; turn < all; ++turn) {
                    const int i = warps[turn / WARP] * WARP + turn % WARP;
                    if (own.ended[i]) continue;
                    threadIdx.x = i % threads;
                    blockIdx = dim3(x + i / threads, y, 0);
                    own.resume(i);
                    left += !own.ended[i];
                }
            }
        }
    }
    return 0;
}

template <typename Kernel, typename... Arguments>
int launch(Kernel kernel, dim3 grid, int threads, int bytes, void*, Arguments... arguments) {
    return launch_clusters(1, kernel, grid, threads, bytes, arguments...);
}
