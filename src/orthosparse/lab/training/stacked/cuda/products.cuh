// Products of tensor cores with maps in shared memory, and what threads do with the results.
#pragma once

#include <primitives.cuh>
#include <tiles.cuh>

namespace {

// Adds the convolution of a strip of a tile, for 8 * COLUMNS output channels from `first` on.
template <int CHANNELS, int IMAGES, int MATRICES, int COLUMNS, bool BACKWARD>
__device__ void convolve_strip(float (&sums)[MATRICES][COLUMNS][4], Address maps, Address weights, unsigned row,
                               unsigned first, unsigned lane) {
    using Maps = Tile<CHANNELS, IMAGES>;
    using Own = Strip<CHANNELS, MATRICES>;
    constexpr int SEEN = MATRICES + 2 / Own::MAP_ROWS;
    // Of the rows of a map that a strip sees, the first is the one above it.
    maps += Maps::offset(row) - Maps::DOWN + (lane % Own::ACROSS) * Maps::PITCH + lane % 16 / Own::ACROSS * Maps::DOWN +
            lane / 16 * 16;
    // Rows 0 to 7 of weights come in two matrices for one product, then in two for the next.
    weights += BACKWARD ? lane % 16 * Maps::PITCH + (first / 8 + lane / 16) * 16
                        : (first + lane / 16 * 8 + lane % 8) * Maps::PITCH + lane / 8 % 2 * 16;
#pragma unroll
    for (int across = 0; across < 3; ++across) {
#pragma unroll
        for (int inner = 0; inner < CHANNELS; inner += 16) {
            const int step = (BACKWARD ? 1 - across : across - 1) * Maps::PITCH + inner * 2;
            uint32_t seen[SEEN][4];
#pragma unroll
            for (int m = 0; m < SEEN; ++m) load_matrices(seen[m], maps + m * Own::MAP_ROWS * Maps::DOWN + step);
#pragma unroll
            for (int down = 0; down < 3; ++down) {
                const int tap = (down * 3 + across) * CHANNELS * Maps::PITCH, map_row = BACKWARD ? 2 - down : down;
#pragma unroll
                for (int column = 0; column < COLUMNS; column += 2) {
                    uint32_t b[4];
                    if (BACKWARD) {
                        load_matrices_transposed(b, weights + tap + inner * Maps::PITCH + column * 16);
                    } else {
                        load_matrices(b, weights + tap + column * 8 * Maps::PITCH + inner * 2);
                    }
#pragma unroll
                    for (int m = 0; m < MATRICES; ++m) {
                        const uint32_t (&above)[4] = seen[m + map_row / Own::MAP_ROWS];
                        if (map_row % Own::MAP_ROWS == 0) {
                            multiply(sums[m][column], above, b[0], b[1]);
                            multiply(sums[m][column + 1], above, b[2], b[3]);
                        } else {  // the second row of one matrix, and the first of the next
                            const uint32_t (&below)[4] = seen[m + map_row / Own::MAP_ROWS + 1];
                            const uint32_t both[] = {above[1], below[0], above[3], below[2]};
                            multiply(sums[m][column], both, b[0], b[1]);
                            multiply(sums[m][column + 1], both, b[2], b[3]);
                        }
                    }
                }
            }
        }
    }
}

// The channels that a thread has of one row, 2 * COUNT of them, side by side.
template <int COUNT>
struct ChannelRun {
    uint32_t pair[COUNT];

    __device__ static ChannelRun read(const unsigned char* from) {
        if constexpr (COUNT == 4) {
            const uint4 all = *reinterpret_cast<const uint4*>(from);
            return {{all.x, all.y, all.z, all.w}};
        } else {
            static_assert(COUNT == 2);
            const uint2 all = *reinterpret_cast<const uint2*>(from);
            return {{all.x, all.y}};
        }
    }

    __device__ void write(unsigned char* to) const {
        if constexpr (COUNT == 4) {
            *reinterpret_cast<uint4*>(to) = make_uint4(pair[0], pair[1], pair[2], pair[3]);
        } else {
            *reinterpret_cast<uint2*>(to) = make_uint2(pair[0], pair[1]);
        }
    }
};

// Sums of some channels over the rows of a thread, of two kinds.
template <int COUNT>
struct Sums {
    float one[2 * COUNT], two[2 * COUNT];

    __device__ void clear() {
#pragma unroll
        for (int i = 0; i < 2 * COUNT; ++i) one[i] = two[i] = 0;
    }

    __device__ void add(int i, float value, float other) { one[i] += value, two[i] += value * other; }

    // Writes the sums of a warp, [2, CHANNELS], for its channels from `first` on.
    template <int CHANNELS>
    __device__ void write(float* to, unsigned first, unsigned lane) {
#pragma unroll
        for (int i = 0; i < 2 * COUNT; ++i) {
#pragma unroll
            for (int distance = 4; distance < WARP; distance *= 2) {
                one[i] += shuffled(one[i], distance);
                two[i] += shuffled(two[i], distance);
            }
            if (lane < 4) {
                to[first + lane * 2 * COUNT + i] = one[i];
                to[CHANNELS + first + lane * 2 * COUNT + i] = two[i];
            }
        }
    }
};

// Adds up what warps have written of a tile, those that have a channel, in order. GROUPS of warps share the channels.
template <int CHANNELS, int WARPS, int GROUPS>
__device__ void gather(float* to, const float* parts, unsigned thread, int threads) {
    for (unsigned i = thread; i < 2 * CHANNELS; i += threads) {
        float sum = 0;
        for (unsigned warp = i % CHANNELS / (CHANNELS / GROUPS); warp < WARPS; warp += GROUPS) {
            sum += parts[warp * 2 * CHANNELS + i];
        }
        to[i] = sum;
    }
}

}  // namespace
