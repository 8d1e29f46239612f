// How samples and weights of circular convolutions lie in memory: in groups of 8 channels, 16 bytes, as products want them.
//
// Samples are [networks, images, groups, pixels, 8 channels]. In shared memory every group has two rows of pixels more:
// its last one comes again before the first, and the first after the last. A tap above or below is then another address.
//
// Weights are [layers, networks, halves, down, groups, across, 64 outputs, 8 inputs]: a block computes one half of the
// outputs, from all inputs.
#pragma once

#include <hopper.cuh>

namespace {

constexpr int CHANNELS = 128, SIDE = 8, PIXELS = SIDE * SIDE, GROUPS = CHANNELS / 8, HALF = CHANNELS / 2, TAPS = 9;
constexpr int MAP = CHANNELS * PIXELS, WEIGHTS = CHANNELS * CHANNELS * TAPS;  // numbers of an image, and of a layer
constexpr int PIXEL_BYTES = 16, ROW_BYTES = SIDE * PIXEL_BYTES, GROUP_BYTES = (SIDE + 2) * ROW_BYTES;
constexpr int MAP_BYTES = GROUPS * GROUP_BYTES;
constexpr unsigned GROUP_OF_WARPS = 4 * WARP;

// Where weights of a direction lie, of an output and an input of that direction.
__device__ inline int place_of_weight(int output, int down, int across, int input) {
    const int row = ((output / HALF * 3 + down) * GROUPS + input / 8) * 3 + across;
    return (row * HALF + output % HALF) * 8 + input % 8;
}

}  // namespace
