// Host help on a CUDA device.
#pragma once

#include <memory>

#include "core/host_help.h"
#include "cuda/cuda_context.h"

namespace attn::cuda {

// `context` outlives the object and its graphs.
std::unique_ptr<HostHelp> make_host_help(const CudaContext& context);

}  // namespace attn::cuda
