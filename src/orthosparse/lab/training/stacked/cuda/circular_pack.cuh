// Packs the weights of circular convolutions into the layout that the kernels read, for both passes.
#pragma once

#include <circular_layout.cuh>

struct PackParams {
    const float* weights;       // [layers * networks, out, taps, in]
    uint4 *forward, *backward;  // in the order of `weight_index`
};

namespace {

// A block packs PACK_TILE x PACK_TILE weights of a tap. The padding of the tile's rows avoids bank conflicts.
constexpr int PACK_TILE = 64, PACK_THREADS = 256, PACK_PITCH = PACK_TILE + 1;
constexpr int PACK_BYTES = PACK_TILE * PACK_PITCH * 4;
constexpr int PACK_TILES = (CHANNELS / PACK_TILE) * (CHANNELS / PACK_TILE);  // of a tap

// Packs eight numbers, which are `stride` apart, as bfloat16.
__device__ inline uint4 pack_eight(const float* from, int stride) {
    const auto pair = [&](int i) { return pack_bf16(from[i * stride], from[(i + 1) * stride]); };
    return make_uint4(pair(0), pair(2), pair(4), pair(6));
}

// For the backward pass, input and output channels are exchanged and the kernel is flipped.
__global__ void __launch_bounds__(PACK_THREADS) pack_kernel(const PackParams params) {
    float* tile = reinterpret_cast<float*>(shared_memory());
    const int tap = blockIdx.x / PACK_TILES;
    const int out = blockIdx.x % PACK_TILES / 2 * PACK_TILE, in = blockIdx.x % 2 * PACK_TILE;
    const float* weights = params.weights + static_cast<long long>(blockIdx.y) * WEIGHTS;
    for (int i = threadIdx.x; i < PACK_TILE * PACK_TILE; i += PACK_THREADS) {
        const int row = i / PACK_TILE, column = i % PACK_TILE;
        tile[row * PACK_PITCH + column] = weights[((out + row) * TAPS + tap) * CHANNELS + in + column];
    }
    sync_threads();
    const long long start = static_cast<long long>(blockIdx.y) * (WEIGHTS / 8);
    const int tap_row = tap / KERNEL_SIDE, tap_column = tap % KERNEL_SIDE;
    for (int i = threadIdx.x; i < PACK_TILE * PACK_TILE / 8; i += PACK_THREADS) {
        const int channel = i % PACK_TILE, first_of_eight = i / PACK_TILE * 8;
        const int forward = weight_index(out + channel, tap_row, tap_column, in + first_of_eight) / 8;
        params.forward[start + forward] = pack_eight(tile + channel * PACK_PITCH + first_of_eight, 1);
        const int backward = weight_index(in + channel, KERNEL_SIDE - 1 - tap_row, KERNEL_SIDE - 1 - tap_column,
                                          out + first_of_eight) / 8;
        params.backward[start + backward] = pack_eight(tile + first_of_eight * PACK_PITCH + channel, PACK_PITCH);
    }
}

}  // namespace
