// Launches one call of a softmax operator: lengths from host memory, growing caches' past rows, the
// KV update or the packed lengths, the attention.
#pragma once

#include "core/backend.h"
#include "cuda/cuda_plan.h"
#include "cuda/cuda_session.h"

namespace attn::cuda {

// Queues the call's launches; `scratch` has the plan's workspace. What cannot be served is refused
// before the first of them. Throws UNSUPPORTED, DEVICE.
void run_softmax(const CudaContext& context, const CudaPlan& plan, const Lowering& call,
                 CudaSession& session, const Launch& request, CUdeviceptr scratch);

}  // namespace attn::cuda
