// The header of this name of the kernels, for a CPU: products and copies are done at once, by the thread that asks.
#pragma once

#include <primitives.cuh>

#define CLUSTER_OF_TWO

struct Operand {
    Address begin;
    unsigned leading, stride;
};

inline Operand operand(Address begin, unsigned leading, unsigned stride) { return {begin, leading, stride}; }

// The entry of a matrix at k and a row (or a column) of its other side; `inner` where that side is innermost in a piece.
inline float entry_of(const Operand& matrix, int k, int other, bool inner) {
    const int outside = inner ? k % 8 : other % 8, inside = inner ? other % 8 : k % 8;
    const Address at = matrix.begin + k / 8 * matrix.leading + other / 8 * matrix.stride + outside * 16 + inside * 2;
    if (reinterpret_cast<uintptr_t>(matrix.begin) % 16 || !is_shared(at, 2)) {
        throw std::runtime_error("a matrix that is not in shared memory, or not aligned");
    }
    uint16_t bits;
    std::memcpy(&bits, at, 2);
    return first_of(bits);
}

template <int COUNT>
void multiply_64(float (&sum)[COUNT], const Operand& a, const Operand& b, bool add, bool inner) {
    const int thread = block->current % block->size % (4 * WARP), lane = thread % WARP;
    for (int half = 0; half < 2; ++half) {
        float row[16];
        for (int k = 0; k < 16; ++k) row[k] = entry_of(a, k, thread / WARP * 16 + half * 8 + lane / 4, inner);
        for (int column = 0; column < COUNT / 2; ++column) {
            float& own = sum[column / 2 * 4 + half * 2 + column % 2];
            if (!add) own = 0;
            const int at = column / 2 * 8 + lane % 4 * 2 + column % 2;
            for (int k = 0; k < 16; ++k) own += row[k] * entry_of(b, k, at, inner);
        }
    }
}

inline void multiply_64_192(float (&sum)[96], Operand a, Operand b, int add) { multiply_64(sum, a, b, add, false); }
inline void multiply_64_128_transposed(float (&sum)[64], Operand a, Operand b, int add) {
    multiply_64(sum, a, b, add, true);
}

inline void begin_products() {}
inline void end_products() {}
template <int LEFT>
void wait_for_products() {}
template <int COUNT>
void settle(float (&)[COUNT]) {}
inline void publish_memory() {}

struct Barrier {
    uint8_t arrivals, left;
    uint16_t phase;
    int32_t bytes;  // announced, and not yet there
};

inline void prepare(Barrier* barrier, int arrivals) {
    *barrier = {static_cast<uint8_t>(arrivals), static_cast<uint8_t>(arrivals), 0, 0};
}

inline void publish_barriers() {}

inline void count(Barrier* barrier, int arrivals, int bytes) {
    barrier->left -= arrivals;
    barrier->bytes += bytes;
    if (barrier->left == 0 && barrier->bytes == 0) {
        barrier->left = barrier->arrivals;
        ++barrier->phase;
    }
}

inline void arrive(Barrier* barrier) { count(barrier, 1, 0); }
inline void arrive_for_bytes(Barrier* barrier, int bytes) { count(barrier, 1, bytes); }
inline void arrive_after_copies(Barrier* barrier) { arrive(barrier); }

inline void wait_for(Barrier* barrier, unsigned parity) {
    while ((barrier->phase & 1) == parity) block->yield();
}

inline void copy_in_bulk(void* to, const void* from, int bytes, Barrier* barrier) {
    if (!is_shared(to, bytes)) throw std::runtime_error("a copy that does not end in shared memory");
    std::memcpy(to, from, bytes);
    count(barrier, 0, -bytes);
}

inline unsigned rank_in_cluster() { return block->rank(); }

inline void synchronize_cluster() {
    ++block->passed[block->current];
    block->wait_for(block->passed, 0, static_cast<int>(block->threads.size()));
}

inline Address address_in(unsigned rank, Address own) { return shared_memory_of(rank) + (own - shared_memory()); }

inline void copy_to_block(Address to, const void* from, int bytes, Address barrier) {
    std::memcpy(const_cast<unsigned char*>(to), from, bytes);
    count(reinterpret_cast<Barrier*>(const_cast<unsigned char*>(barrier)), 0, -bytes);
}

inline void synchronize_four_warps(int) {
    const int begin = block->rank() * block->size;
    const int first = block->current - (block->current - begin) % (4 * WARP);
    ++block->grouped[block->current];
    block->wait_for(block->grouped, first, first + 4 * WARP);
}

template <int COUNT>
void keep_registers() {}
template <int COUNT>
void get_registers() {}

inline void converge() { exchanged(0); }

inline float from_lane(float value, unsigned lane) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return as_float(static_cast<uint32_t>(exchanged(bits)[lane]));
}

template <typename Kernel, typename... Arguments>
int launch_pairs(Kernel kernel, dim3 grid, int threads, int bytes, void*, Arguments... arguments) {
    return launch_clusters(2, kernel, grid, threads, bytes, arguments...);
}
