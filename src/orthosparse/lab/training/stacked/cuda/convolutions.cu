// Convolutions of 3 x 3 taps and stride 1, padded with zeros, with equal numbers of input and output channels, for all
// networks of a stack; with the normalisations and activations around them in a residual network. In bfloat16 with
// float32 accumulators.
//
// Samples are [networks, images, side, side, channels], weights [networks, out, taps, in]. A block computes some images
// of one network, a tile at a time. It loads the maps of a tile into shared memory once, with a halo of zeros. A tap is
// then only an offset of the address, and tensor cores read their operands from there.
//
// Sums over pixels are stored for each tile and added up later in a fixed order: they depend neither on the order in
// which blocks run nor on the other networks.
#include <backward.cuh>
#include <forward.cuh>
#include <primitives.cuh>

namespace {

template <int CHANNELS>
int launch_forward(const ForwardParams& params, dim3 grid, void* stream) {
    const int threads = ForwardConfig<CHANNELS>::WARPS * WARP_SIZE;
    return launch(forward_kernel<CHANNELS>, grid, threads, ForwardMemory<CHANNELS>::BYTES, stream, params);
}

template <int CHANNELS>
int launch_backward(const BackwardParams& params, dim3 grid, void* stream) {
    const int threads = BackwardBlock<CHANNELS>::THREADS;
    return launch(backward_kernel<CHANNELS>, grid, threads, BackwardMemory<CHANNELS>::BYTES, stream, params);
}

constexpr int UNSUPPORTED_CHANNELS = -1;

}  // namespace

// How a pass is shared out: images of a tile, and what a block needs.
struct Plan {
    int images, blocks_per_sm, shared_bytes;
};

template <int CHANNELS>
void fill_plans(Plan (&plans)[2]) {
    using Forward = ForwardConfig<CHANNELS>;
    using Backward = BackwardConfig<CHANNELS>;
    plans[0] = {Forward::IMAGES, Forward::BLOCKS_PER_SM, ForwardMemory<CHANNELS>::BYTES};
    plans[1] = {Backward::IMAGES, Backward::BLOCKS_PER_SM, BackwardMemory<CHANNELS>::BYTES};
}

// Fills the plans of the forward and of the backward pass; returns whether the device has shared memory for both.
extern "C" int get_plans(int channels, int device, Plan (&plans)[2]) {
    if (channels == 16) fill_plans<16>(plans);
    if (channels == 32) fill_plans<32>(plans);
    if (channels == 64) fill_plans<64>(plans);
    return plans[0].shared_bytes <= max_shared_memory(device) && plans[1].shared_bytes <= max_shared_memory(device);
}

// Stores the convolution of x and, unless null, the sums of it and of its squares: [networks, tiles, 2, channels].
// Unless scale_shift is null, x is normalised by it and activated first.
extern "C" int convolve_forward(int channels, int networks, int blocks, ForwardParams params, void* stream) {
    const dim3 grid(blocks, networks, 1);
    if (channels == 16) return launch_forward<16>(params, grid, stream);
    if (channels == 32) return launch_forward<32>(params, grid, stream);
    if (channels == 64) return launch_forward<64>(params, grid, stream);
    return UNSUPPORTED_CHANNELS;
}

// Takes the gradient of the normalised z, which is a convolution of x, and unless null another gradient of x. Stores
// the gradient before the activation whose output is x (out), the sums of it and of its product with previous_z, and
// the gradient of the weights, [networks, blocks, out, taps, in], which is to be summed over blocks.
extern "C" int convolve_backward(int channels, int networks, int blocks, BackwardParams params, void* stream) {
    const dim3 grid(blocks, networks, 1);
    if (channels == 16) return launch_backward<16>(params, grid, stream);
    if (channels == 32) return launch_backward<32>(params, grid, stream);
    if (channels == 64) return launch_backward<64>(params, grid, stream);
    return UNSUPPORTED_CHANNELS;
}
