// The kernels' header of this name for a CPU: products and copies are done at once, by the thread that starts them.
#pragma once

#include <primitives.cuh>

#define CLUSTER_OF_TWO

struct MatrixDescriptor {
    SharedAddress start;
    unsigned leading, stride;
};

inline MatrixDescriptor matrix_descriptor(SharedAddress start, unsigned leading, unsigned stride) {
    return {start, leading, stride};
}

// The element of a matrix at k and an index of the other dimension. Within a core matrix, k is the inner dimension
// unless `transposed`.
inline float element_of(const MatrixDescriptor& matrix, int k, int other, bool transposed) {
    const int outer = transposed ? k % 8 : other % 8, inner = transposed ? other % 8 : k % 8;
    const SharedAddress address =
        matrix.start + k / 8 * matrix.leading + other / 8 * matrix.stride + outer * 16 + inner * 2;
    if (reinterpret_cast<uintptr_t>(matrix.start) % 16 || !is_shared(address, 2)) {
        throw std::runtime_error("wgmma: a matrix is not in shared memory, or not aligned");
    }
    uint16_t bits;
    std::memcpy(&bits, address, 2);
    return unpack_low(bits);
}

template <int COUNT>
void wgmma(float (&accumulator)[COUNT], const MatrixDescriptor& a, const MatrixDescriptor& b, bool accumulate,
           bool transposed) {
    const int thread = cluster->current % cluster->block_size % (4 * WARP_SIZE), lane = thread % WARP_SIZE;
    for (int half = 0; half < 2; ++half) {
        float row[16];
        const int row_index = thread / WARP_SIZE * 16 + half * 8 + lane / 4;
        for (int k = 0; k < 16; ++k) row[k] = element_of(a, k, row_index, transposed);
        for (int i = 0; i < COUNT / 2; ++i) {
            float& sum = accumulator[i / 2 * 4 + half * 2 + i % 2];
            if (!accumulate) sum = 0;
            const int column = i / 2 * 8 + lane % 4 * 2 + i % 2;
            for (int k = 0; k < 16; ++k) sum += row[k] * element_of(b, k, column, transposed);
        }
    }
}

inline void wgmma_m64n192k16(float (&accumulator)[96], MatrixDescriptor a, MatrixDescriptor b, int accumulate) {
    wgmma(accumulator, a, b, accumulate, false);
}
inline void wgmma_m64n128k16_transposed(float (&accumulator)[64], MatrixDescriptor a, MatrixDescriptor b,
                                        int accumulate) {
    wgmma(accumulator, a, b, accumulate, true);
}

inline void wgmma_fence() {}
inline void wgmma_commit_group() {}
template <int PENDING>
void wgmma_wait_group() {}
template <int COUNT>
void fence_accumulator(float (&)[COUNT]) {}
inline void fence_async_proxy() {}

struct Barrier {
    uint8_t arrivals, left;
    uint16_t phase;
    int32_t bytes;  // expected, and not copied yet
};

inline void init_barrier(Barrier* barrier, int arrivals) {
    *barrier = {static_cast<uint8_t>(arrivals), static_cast<uint8_t>(arrivals), 0, 0};
}

inline void fence_barrier_init() {}

inline void update(Barrier* barrier, int arrivals, int bytes) {
    barrier->left -= arrivals;
    barrier->bytes += bytes;
    if (barrier->left == 0 && barrier->bytes == 0) {
        barrier->left = barrier->arrivals;
        ++barrier->phase;
    }
}

inline void arrive(Barrier* barrier) { update(barrier, 1, 0); }
inline void arrive_and_expect_bytes(Barrier* barrier, int bytes) { update(barrier, 1, bytes); }
inline void arrive_after_cp_async(Barrier* barrier) { arrive(barrier); }

inline void wait_for_phase(Barrier* barrier, unsigned parity) {
    while ((barrier->phase & 1) == parity) cluster->yield();
}

inline void bulk_copy(void* to, const void* from, int bytes, Barrier* barrier) {
    if (!is_shared(to, bytes)) throw std::runtime_error("bulk_copy: the target is not in shared memory");
    std::memcpy(to, from, bytes);
    update(barrier, 0, -bytes);
}

inline unsigned cluster_rank() { return cluster->rank(); }

inline void sync_cluster() { cluster->wait_at(cluster->barriers, 0, cluster->size()); }

inline SharedAddress address_in_rank(unsigned rank, SharedAddress address) {
    return shared_memory_of(rank) + (address - shared_memory());
}

inline void bulk_copy_to_rank(SharedAddress to, const void* from, int bytes, SharedAddress barrier) {
    std::memcpy(const_cast<unsigned char*>(to), from, bytes);
    update(reinterpret_cast<Barrier*>(const_cast<unsigned char*>(barrier)), 0, -bytes);
}

inline void sync_warpgroup(int) {
    const int begin = cluster->rank() * cluster->block_size;
    const int first = cluster->current - (cluster->current - begin) % (4 * WARP_SIZE);
    cluster->wait_at(cluster->warpgroup_barriers, first, first + 4 * WARP_SIZE);
}

template <int COUNT>
void decrease_registers() {}
template <int COUNT>
void increase_registers() {}

inline void sync_warp() { exchange(0); }

inline float shuffle(float value, unsigned lane) {
    return as_float(static_cast<uint32_t>(exchange(bits_of(value))[lane]));
}

template <typename Kernel, typename... Arguments>
int launch_clusters_of_two(Kernel kernel, dim3 grid, int threads, int shared_bytes, void*, Arguments... arguments) {
    return launch_clusters(2, kernel, grid, threads, shared_bytes, arguments...);
}
