// Runs of circular convolutions of 3 x 3 taps and 128 channels on maps of 8 x 8 pixels, each followed by an activation,
// for all networks of a stack: forward and backward through many layers in one launch, and gradients of weights and
// biases. In bfloat16 with float32 accumulators, for Hopper.
//
// The results of a network depend neither on the other networks nor on the order in which blocks run.
#include <circular_bias_grad.cuh>
#include <circular_chain.cuh>
#include <circular_pack.cuh>
#include <circular_weight_grad.cuh>

namespace {

// Two blocks, a cluster, for every two images of a network.
dim3 chain_grid(const ChainParams& params) { return dim3((params.images + 1) / 2 * 2, params.networks, 1); }

}  // namespace

extern "C" int pack_weights(PackParams params, int layers, void* stream) {
    return launch(pack_kernel, dim3(TAPS * PACK_TILES, layers, 1), PACK_THREADS, PACK_BYTES, stream, params);
}

extern "C" int chain_forward(ChainParams params, void* stream) {
    return launch_clusters_of_two(chain_kernel<false>, chain_grid(params), CHAIN_THREADS, ChainMemory::BYTES, stream,
                                  params);
}

extern "C" int chain_backward(ChainParams params, void* stream) {
    return launch_clusters_of_two(chain_kernel<true>, chain_grid(params), CHAIN_THREADS, ChainMemory::BYTES, stream,
                                  params);
}

extern "C" int weight_grad(WeightGradParams params, int layers, void* stream) {
    const dim3 grid(KERNEL_SIDE, layers, 1);
    return launch(weight_grad_kernel, grid, WEIGHT_GRAD_THREADS, WeightGradMemory::BYTES, stream, params);
}

extern "C" int bias_grad(BiasGradParams params, int layers, void* stream) {
    return launch(bias_grad_kernel, dim3(GROUPS, layers, 1), BIAS_GRAD_THREADS, BIAS_GRAD_BYTES, stream, params);
}
