// Convolutions of 3 x 3 taps and stride 1 on maps that pad with zeros, of as many channels as they see, for all
// networks of a stack at once; with what comes before and after them in a residual network. bfloat16, sums in float32.
//
// Samples are [networks, images, side, side, channels], weights [networks, out, taps, in]. A block takes some images of
// one network, a tile at a time: it reads the maps of a tile into shared memory, once, inside a border of zeros. A tap
// is then only another address there, and tensor cores read their operands from it as they are.
//
// Sums over rows are taken by tile and added up later in one order: they depend neither on when a block ran nor on the
// other networks.
#include <backward.cuh>
#include <forward.cuh>
#include <primitives.cuh>

namespace {

template <int CHANNELS>
int run_forward(const ForwardArguments& given, dim3 grid, void* stream) {
    const int threads = Forward<CHANNELS>::WARPS * WARP;
    return launch(forward_kernel<CHANNELS>, grid, threads, ForwardMemory<CHANNELS>::BYTES, stream, given);
}

template <int CHANNELS>
int run_backward(const BackwardArguments& given, dim3 grid, void* stream) {
    const int threads = BackwardBlock<CHANNELS>::THREADS;
    return launch(backward_kernel<CHANNELS>, grid, threads, BackwardMemory<CHANNELS>::BYTES, stream, given);
}

constexpr int NO_SUCH_CHANNELS = -1;

}  // namespace

// How a pass over convolutions of so many channels is shared out: images of a tile, blocks that a multiprocessor runs
// at once, and bytes of shared memory that a block needs.
struct Plan {
    int images, blocks, bytes;
};

template <int CHANNELS>
void fill(Plan (&plans)[2]) {
    plans[0] = {Forward<CHANNELS>::IMAGES, Forward<CHANNELS>::BLOCKS, ForwardMemory<CHANNELS>::BYTES};
    plans[1] = {Backward<CHANNELS>::IMAGES, Backward<CHANNELS>::BLOCKS, BackwardMemory<CHANNELS>::BYTES};
}

// Gives the plans of the forward and of the backward pass, and returns whether blocks of both have room on a device.
extern "C" int plans_of(int channels, int device, Plan (&plans)[2]) {
    if (channels == 16) fill<16>(plans);
    if (channels == 32) fill<32>(plans);
    if (channels == 64) fill<64>(plans);
    return plans[0].bytes <= room_on(device) && plans[1].bytes <= room_on(device);
}

// Writes the convolution of x, and unless null its sums: [networks, tiles, 2, channels]. Unless null, scale_shift is
// what normalises x first, before its activation.
extern "C" int convolve_forward(int channels, int networks, int blocks, ForwardArguments given, void* stream) {
    const dim3 grid(blocks, networks, 1);
    if (channels == 16) return run_forward<16>(given, grid, stream);
    if (channels == 32) return run_forward<32>(given, grid, stream);
    if (channels == 64) return run_forward<64>(given, grid, stream);
    return NO_SUCH_CHANNELS;
}

// Takes the gradient v after the normalisation of z, which is a convolution of x, back to before the activation that
// gave x: that, its sums with `below`, and the products whose sum over blocks is the gradient of the weights.
extern "C" int convolve_backward(int channels, int networks, int blocks, BackwardArguments given, void* stream) {
    const dim3 grid(blocks, networks, 1);
    if (channels == 16) return run_backward<16>(given, grid, stream);
    if (channels == 32) return run_backward<32>(given, grid, stream);
    if (channels == 64) return run_backward<64>(given, grid, stream);
    return NO_SUCH_CHANNELS;
}
