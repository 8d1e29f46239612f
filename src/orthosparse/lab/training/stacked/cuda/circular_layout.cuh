// The layout of samples and weights of circular convolutions: groups of 8 channels, 16 bytes, as wgmma reads them.
//
// Samples are [networks, images, groups, pixels, 8 channels]. In shared memory every group has a halo of two rows of
// pixels: its last row is repeated before the first, and its first after the last. A tap above or below is then only an
// offset of the address.
//
// Weights are [layers, networks, halves, tap rows, groups, tap columns, 64 output channels, 8 input channels]: a block
// computes one half of the output channels from all input channels.
#pragma once

#include <hopper.cuh>

namespace {

constexpr int CHANNELS = 128, HALF = CHANNELS / 2, GROUPS = CHANNELS / 8;
constexpr int KERNEL_SIDE = 3, TAPS = KERNEL_SIDE * KERNEL_SIDE;
constexpr int SIDE = 8, PIXELS = SIDE * SIDE;        // of an image
constexpr int IMAGE_SIZE = CHANNELS * PIXELS;        // numbers of an image
constexpr int WEIGHTS = CHANNELS * CHANNELS * TAPS;  // numbers of a layer
constexpr int PIXEL_BYTES = 16, ROW_BYTES = SIDE * PIXEL_BYTES, GROUP_BYTES = (SIDE + 2) * ROW_BYTES;  // of a group
constexpr int MAP_BYTES = GROUPS * GROUP_BYTES;
constexpr unsigned WARPGROUP_SIZE = 4 * WARP_SIZE;  // threads

// The index of a weight within a layer.
__device__ inline int weight_index(int out_channel, int tap_row, int tap_column, int in_channel) {
    const int row = ((out_channel / HALF * KERNEL_SIDE + tap_row) * GROUPS + in_channel / 8) * KERNEL_SIDE + tap_column;
    return (row * HALF + out_channel % HALF) * 8 + in_channel % 8;
}

}  // namespace
