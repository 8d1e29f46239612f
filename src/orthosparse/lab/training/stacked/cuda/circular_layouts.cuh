// Weights of circular convolutions brought into the order of products, and sums of gradients by channel.
#pragma once

#include <circular_maps.cuh>

struct PackArguments {
    const float* weights;       // [layers * networks, out, taps, in]
    uint4 *forward, *backward;  // in the order of `place_of_weight`
};

struct SumArguments {
    const uint4* x;  // [layers * networks, images, groups, pixels, 8 channels]
    float* out;      // [layers * networks, channels]
    int images;
};

namespace {

constexpr int TILE = 64, PACK_THREADS = 256, PITCH = TILE + 1, PACK_BYTES = TILE * PITCH * 4;
constexpr int PARTS = (CHANNELS / TILE) * (CHANNELS / TILE);

// Eight numbers, `step` apart, rounded to bfloat16.
__device__ inline uint4 packed_eight(const float* from, int step) {
    const auto pair = [&](int i) { return packed(from[i * step], from[(i + 1) * step]); };
    return make_uint4(pair(0), pair(2), pair(4), pair(6));
}

// A block takes 64 outputs and 64 inputs of one tap. Backward, both change places and taps are mirrored.
__global__ void __launch_bounds__(PACK_THREADS) pack_kernel(const PackArguments given) {
    float* tile = reinterpret_cast<float*>(shared_memory());
    const int tap = blockIdx.x / PARTS, out = blockIdx.x % PARTS / 2 * TILE, in = blockIdx.x % 2 * TILE;
    const float* weights = given.weights + static_cast<long long>(blockIdx.y) * WEIGHTS;
    for (int i = threadIdx.x; i < TILE * TILE; i += PACK_THREADS) {
        tile[i / TILE * PITCH + i % TILE] = weights[((out + i / TILE) * TAPS + tap) * CHANNELS + in + i % TILE];
    }
    synchronize();
    const long long begin = static_cast<long long>(blockIdx.y) * (WEIGHTS / 8);
    const int down = tap / 3, across = tap % 3;
    for (int i = threadIdx.x; i < TILE * TILE / 8; i += PACK_THREADS) {
        const int one = i % TILE, eight = i / TILE * 8;
        const int there = place_of_weight(out + one, down, across, in + eight) / 8;
        given.forward[begin + there] = packed_eight(tile + one * PITCH + eight, 1);
        const int back = place_of_weight(in + one, 2 - down, 2 - across, out + eight) / 8;
        given.backward[begin + back] = packed_eight(tile + eight * PITCH + one, PITCH);
    }
}

constexpr int SUM_THREADS = 256, SUM_BYTES = SUM_THREADS / WARP * 8 * 4;

// A block takes 8 channels of one layer of one network.
__global__ void __launch_bounds__(SUM_THREADS) sum_kernel(const SumArguments given) {
    float* partial = reinterpret_cast<float*>(shared_memory());
    const int group = blockIdx.x, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint4* x = given.x + (static_cast<long long>(blockIdx.y) * given.images * GROUPS + group) * PIXELS;
    float sums[8] = {};
    for (int i = threadIdx.x; i < given.images * PIXELS; i += SUM_THREADS) {
        const uint4 eight = x[static_cast<long long>(i / PIXELS) * GROUPS * PIXELS + i % PIXELS];
        const uint32_t pairs[] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
        for (int c = 0; c < 8; ++c) sums[c] += c % 2 ? second_of(pairs[c / 2]) : first_of(pairs[c / 2]);
    }
#pragma unroll
    for (int c = 0; c < 8; ++c) {
        for (int distance = 1; distance < static_cast<int>(WARP); distance *= 2) sums[c] += shuffled(sums[c], distance);
        if (lane == 0) partial[warp * 8 + c] = sums[c];
    }
    synchronize();
    if (threadIdx.x < 8) {
        float total = 0;
        for (int w = 0; w < SUM_THREADS / static_cast<int>(WARP); ++w) total += partial[w * 8 + threadIdx.x];
        given.out[blockIdx.y * CHANNELS + group * 8 + threadIdx.x] = total;
    }
}

}  // namespace
