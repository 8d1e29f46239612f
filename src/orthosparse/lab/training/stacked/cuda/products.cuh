// Products of tensor cores with tiles in shared memory, and what threads do with the accumulators.
#pragma once

#include <primitives.cuh>
#include <tiles.cuh>

namespace {

// Adds the convolution of the pixels of a warp, of which `pixel` is the first, to 8 * MMA_N output channels from
// `first_channel` on. BACKWARD, the kernel is flipped and transposed.
template <int CHANNELS, int IMAGES, int MMA_M, int MMA_N, bool BACKWARD>
__device__ void convolve_warp_tile(float (&accumulator)[MMA_M][MMA_N][4], SharedAddress maps, SharedAddress weights,
                                   unsigned pixel, unsigned first_channel, unsigned lane) {
    using Maps = Tile<CHANNELS, IMAGES>;
    using Warp = WarpTile<CHANNELS, MMA_M>;
    constexpr int OPERANDS = MMA_M + 2 / Warp::MMA_ROWS;  // with the rows above and below
    // The addresses of this lane for ldmatrix: of the row of pixels above the first one, and of the weights, of which
    // rows 0 to 7 are two matrices for one product, followed by two for the next one.
    maps += Maps::offset(pixel) - Maps::ROW_BYTES + (lane % Warp::WIDTH) * Maps::PIXEL_BYTES +
            lane % 16 / Warp::WIDTH * Maps::ROW_BYTES + lane / 16 * 16;
    weights += BACKWARD ? lane % 16 * Maps::PIXEL_BYTES + (first_channel / 8 + lane / 16) * 16
                        : (first_channel + lane / 16 * 8 + lane % 8) * Maps::PIXEL_BYTES + lane / 8 % 2 * 16;
#pragma unroll
    for (int tap_column = 0; tap_column < 3; ++tap_column) {
#pragma unroll
        for (int k = 0; k < CHANNELS; k += 16) {
            const int offset = (BACKWARD ? 1 - tap_column : tap_column - 1) * Maps::PIXEL_BYTES + k * 2;
            uint32_t a[OPERANDS][4];
#pragma unroll
            for (int m = 0; m < OPERANDS; ++m) ldmatrix_x4(a[m], maps + m * Warp::MMA_ROWS * Maps::ROW_BYTES + offset);
#pragma unroll
            for (int tap_row = 0; tap_row < 3; ++tap_row) {
                const int tap = (tap_row * 3 + tap_column) * CHANNELS * Maps::PIXEL_BYTES;
                const int map_row = BACKWARD ? 2 - tap_row : tap_row;
#pragma unroll
                for (int n = 0; n < MMA_N; n += 2) {
                    uint32_t b[4];
                    if (BACKWARD) {
                        ldmatrix_x4_transposed(b, weights + tap + k * Maps::PIXEL_BYTES + n * 16);
                    } else {
                        ldmatrix_x4(b, weights + tap + n * 8 * Maps::PIXEL_BYTES + k * 2);
                    }
#pragma unroll
                    for (int m = 0; m < MMA_M; ++m) {
                        const uint32_t (&first)[4] = a[m + map_row / Warp::MMA_ROWS];
                        if (map_row % Warp::MMA_ROWS == 0) {
                            mma_m16n8k16(accumulator[m][n], first, b[0], b[1]);
                            mma_m16n8k16(accumulator[m][n + 1], first, b[2], b[3]);
                        } else {  // the second row of one operand, and the first row of the next
                            const uint32_t (&second)[4] = a[m + map_row / Warp::MMA_ROWS + 1];
                            const uint32_t joined[] = {first[1], second[0], first[3], second[2]};
                            mma_m16n8k16(accumulator[m][n], joined, b[0], b[1]);
                            mma_m16n8k16(accumulator[m][n + 1], joined, b[2], b[3]);
                        }
                    }
                }
            }
        }
    }
}

// The adjacent channels of a pixel that a thread computes: PAIRS pairs of bfloat16.
template <int PAIRS>
struct ChannelPairs {
    uint32_t pair[PAIRS];

    __device__ static ChannelPairs load(const unsigned char* from) {
        if constexpr (PAIRS == 4) {
            const uint4 value = *reinterpret_cast<const uint4*>(from);
            return {{value.x, value.y, value.z, value.w}};
        } else {
            static_assert(PAIRS == 2);
            const uint2 value = *reinterpret_cast<const uint2*>(from);
            return {{value.x, value.y}};
        }
    }

    __device__ void store(unsigned char* to) const {
        if constexpr (PAIRS == 4) {
            *reinterpret_cast<uint4*>(to) = make_uint4(pair[0], pair[1], pair[2], pair[3]);
        } else {
            *reinterpret_cast<uint2*>(to) = make_uint2(pair[0], pair[1]);
        }
    }
};

// Two sums over pixels for each channel of a thread: of a value, and of its product with another one.
template <int PAIRS>
struct ChannelSums {
    float value_sum[2 * PAIRS], product_sum[2 * PAIRS];

    __device__ void clear() {
#pragma unroll
        for (int i = 0; i < 2 * PAIRS; ++i) value_sum[i] = product_sum[i] = 0;
    }

    __device__ void add(int i, float value, float other) { value_sum[i] += value, product_sum[i] += value * other; }

    // Reduces the sums over the warp, and stores those of its channels in [2, CHANNELS].
    template <int CHANNELS>
    __device__ void store(float* to, unsigned first_channel, unsigned lane) {
#pragma unroll
        for (int i = 0; i < 2 * PAIRS; ++i) {
#pragma unroll
            for (int mask = 4; mask < WARP_SIZE; mask *= 2) {
                value_sum[i] += shuffle_xor(value_sum[i], mask);
                product_sum[i] += shuffle_xor(product_sum[i], mask);
            }
            if (lane < 4) {
                to[first_channel + lane * 2 * PAIRS + i] = value_sum[i];
                to[CHANNELS + first_channel + lane * 2 * PAIRS + i] = product_sum[i];
            }
        }
    }
};

// Adds up the sums that warps have stored for a tile, [WARPS, 2, CHANNELS], in a fixed order. Warp w has those of the
// group of channels w % GROUPS.
template <int CHANNELS, int WARPS, int GROUPS>
__device__ void reduce_warp_sums(float* to, const float* warp_sums, unsigned thread, int threads) {
    for (unsigned i = thread; i < 2 * CHANNELS; i += threads) {
        float sum = 0;
        for (unsigned warp = i % CHANNELS / (CHANNELS / GROUPS); warp < WARPS; warp += GROUPS) {
            sum += warp_sums[warp * 2 * CHANNELS + i];
        }
        to[i] = sum;
    }
}

}  // namespace
