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

// For every number of channels: images of a tile and blocks that a multiprocessor runs at once, forward and backward.
extern "C" void plan_of(int channels, int (&plan)[4]) {
    const auto fill = [&plan](auto forward, auto backward) {
        plan[0] = forward.IMAGES, plan[1] = forward.BLOCKS, plan[2] = backward.IMAGES, plan[3] = backward.BLOCKS;
    };
    if (channels == 16) fill(Forward<16>{}, Backward<16>{});
    if (channels == 32) fill(Forward<32>{}, Backward<32>{});
    if (channels == 64) fill(Forward<64>{}, Backward<64>{});
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
