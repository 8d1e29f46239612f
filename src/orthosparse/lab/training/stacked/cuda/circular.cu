// Runs of circular convolutions of 3 x 3 taps and 128 channels on maps of 8 x 8, each followed by an activation, for all
// networks of a stack: forward and backward passes through many layers in one launch, and gradients of weights. bfloat16,
// sums in float32; on Hopper.
//
// Results of a network depend neither on the other networks nor on the order of work.
#include <circular_chain.cuh>
#include <circular_layouts.cuh>
#include <circular_weight_grad.cuh>

extern "C" int pack_weights(PackArguments given, int layers, void* stream) {
    return launch(pack_kernel, dim3(TAPS * PARTS, layers, 1), PACK_THREADS, PACK_BYTES, stream, given);
}

extern "C" int chain_forward(ChainArguments given, void* stream) {
    const dim3 grid((given.images + 1) / 2 * 2, given.networks, 1);
    return launch_pairs(chain_kernel<false>, grid, CHAIN_THREADS, ChainMemory::BYTES, stream, given);
}

extern "C" int chain_backward(ChainArguments given, void* stream) {
    const dim3 grid((given.images + 1) / 2 * 2, given.networks, 1);
    return launch_pairs(chain_kernel<true>, grid, CHAIN_THREADS, ChainMemory::BYTES, stream, given);
}

extern "C" int weight_grad(WeightGradArguments given, int layers, void* stream) {
    const dim3 grid(3, layers, 1);
    return launch(weight_grad_kernel, grid, WEIGHT_GRAD_THREADS, WeightGradMemory::BYTES, stream, given);
}

extern "C" int sum_channels(SumArguments given, int layers, void* stream) {
    return launch(sum_kernel, dim3(GROUPS, layers, 1), SUM_THREADS, SUM_BYTES, stream, given);
}
