// The forward pass: a convolution of samples, which may be normalised and activated first, and its sums.
#pragma once

#include <primitives.cuh>
#include <products.cuh>
#include <tiles.cuh>

struct ForwardArguments {
    const void *x, *scale_shift, *weights;
    void *out, *sums;
    int images, tiles_of_block;
};

namespace {

// How blocks share the work out: images of a tile; warps, of which each takes MATRICES times 16 rows by 8 * COLUMNS
// channels at a time; blocks that a multiprocessor has at once.
template <int CHANNELS>
struct Forward;
template <>
struct Forward<16> {
    static constexpr int IMAGES = 1, WARPS = 8, MATRICES = 4, COLUMNS = 2, BLOCKS = 3;
};
template <>
struct Forward<32> {
    static constexpr int IMAGES = 2, WARPS = 8, MATRICES = 4, COLUMNS = 4, BLOCKS = 2;
};
template <>
struct Forward<64> {
    static constexpr int IMAGES = 2, WARPS = 8, MATRICES = 2, COLUMNS = 4, BLOCKS = 2;
};

template <int CHANNELS>
struct ForwardMemory {
    using Own = Forward<CHANNELS>;
    static constexpr int MAPS = 0, WEIGHTS = MAPS + Tile<CHANNELS, Own::IMAGES>::BYTES;
    static constexpr int SCALE_SHIFT = WEIGHTS + 9 * CHANNELS * Tile<CHANNELS, 1>::PITCH;
    static constexpr int PARTS = SCALE_SHIFT + bytes_of_coefficients(CHANNELS),
                         BYTES = PARTS + Own::WARPS * 2 * CHANNELS * 4;
};

template <int CHANNELS>
__global__ void __launch_bounds__(Forward<CHANNELS>::WARPS* WARP, Forward<CHANNELS>::BLOCKS)
    forward_kernel(ForwardArguments given) {
    using Own = Forward<CHANNELS>;
    using Maps = Tile<CHANNELS, Own::IMAGES>;
    using Memory = ForwardMemory<CHANNELS>;
    constexpr int THREADS = Own::WARPS * WARP, GROUPS = CHANNELS / (8 * Own::COLUMNS);
    constexpr int COUNT = Own::COLUMNS, STRIPS = Own::IMAGES * Strip<CHANNELS, Own::MATRICES>::COUNT;
    using Strips = Strip<CHANNELS, Own::MATRICES>;
    unsigned char* memory = shared_memory();
    const unsigned thread = threadIdx.x, warp = thread / WARP, lane = thread % WARP;
    const unsigned network = blockIdx.y, networks = gridDim.y, tiles = (given.images + Own::IMAGES - 1) / Own::IMAGES;
    float4* scale_shift = reinterpret_cast<float4*>(memory + Memory::SCALE_SHIFT);
    float* parts = reinterpret_cast<float*>(memory + Memory::PARTS);
    clear(memory, Maps::BYTES, thread, THREADS);
    const Chunk* weights = static_cast<const Chunk*>(given.weights) + network * (9 * CHANNELS * CHANNELS / 8);
    read_weights<CHANNELS, Own::COLUMNS, false>(memory + Memory::WEIGHTS, weights, thread, THREADS);
    if (given.scale_shift != nullptr)
        read_coefficients<CHANNELS, 3>(scale_shift, given.scale_shift, network, networks, thread);
    wait_for_copies();
    synchronize();
    const int begin = blockIdx.x * given.tiles_of_block, first = warp % GROUPS * 8 * Own::COLUMNS;
    for (int tile = begin; tile < tiles && tile < begin + given.tiles_of_block; ++tile) {
        const int image = tile * Own::IMAGES, left = given.images - image;
        const unsigned rows = (left < Own::IMAGES ? left : Own::IMAGES) * Maps::SIDE * Maps::SIDE;
        const int64_t start = (static_cast<int64_t>(network) * given.images + image) * (512 * 512 / CHANNELS);
        read_samples<CHANNELS, Own::IMAGES, THREADS, 4>(memory, static_cast<const Chunk*>(given.x) + start / 8,
                                                        rows * Maps::CHUNKS,
                                                        given.scale_shift == nullptr ? nullptr : scale_shift, thread);
        wait_for_copies();
        synchronize();
        if (tile + 1 < tiles && tile + 1 < begin + given.tiles_of_block) {
            constexpr int BYTES = Maps::ROWS * CHANNELS * 2;
            const auto* next = static_cast<const unsigned char*>(given.x) + 2 * start + BYTES;
            prefetch<THREADS>(next, left < 2 * Own::IMAGES ? BYTES / Own::IMAGES * (left - Own::IMAGES) : BYTES,
                              thread);
        }
        Sums<COUNT> sums;
        sums.clear();
        for (unsigned strip = warp / GROUPS; strip < STRIPS; strip += Own::WARPS / GROUPS) {
            const unsigned row = Strips::row(strip);
            float found[Own::MATRICES][Own::COLUMNS][4] = {};
            convolve_strip<CHANNELS, Own::IMAGES, Own::MATRICES, Own::COLUMNS, false>(
                found, address_of(memory), address_of(memory + Memory::WEIGHTS), row, first, lane);
            unsigned char* to = static_cast<unsigned char*>(given.out) +
                                2 * (start + (row + lane / 4) * CHANNELS + first + lane % 4 * (2 * COUNT));
#pragma unroll
            for (int m = 0; m < 2 * Own::MATRICES; ++m) {
                if (Own::IMAGES > 1 && row >= rows) break;
                ChannelRun<COUNT> run;
#pragma unroll
                for (int i = 0; i < COUNT; ++i) {
                    const float* values = found[m / 2][i] + m % 2 * 2;
                    run.pair[i] = packed(values[0], values[1]);
                    sums.add(2 * i, first_of(run.pair[i]), first_of(run.pair[i]));
                    sums.add(2 * i + 1, second_of(run.pair[i]), second_of(run.pair[i]));
                }
                run.write(to + 2 * (m / 2 * Strips::NEXT + m % 2 * 8) * CHANNELS);
            }
        }
        if (given.sums != nullptr) sums.template write<CHANNELS>(parts + warp * 2 * CHANNELS, first, lane);
        synchronize();
        if (given.sums != nullptr) {
            float* to = static_cast<float*>(given.sums) + (static_cast<int64_t>(network) * tiles + tile) * 2 * CHANNELS;
            gather<CHANNELS, Own::WARPS, GROUPS>(to, parts, thread, THREADS);
        }
    }
}

}  // namespace
