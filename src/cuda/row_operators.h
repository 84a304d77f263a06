// RotaryEmbedding and TensorScatter on a CUDA device: calls without lengths, one kernel each.
#pragma once

#include <string>
#include <vector>

#include "core/backend.h"
#include "core/problem.h"
#include "cuda/cuda_context.h"
#include "cuda/cuda_plan.h"
#include "cuda/cuda_session.h"
#include "cuda/kernel_store.h"

namespace attn::cuda {

inline constexpr const char* kRotaryName = "thread-rotary";
inline constexpr const char* kScatterName = "thread-scatter";

inline bool is_row_operator(const Lowering& call) {
  return call.rotary.has_value() || call.scatter.has_value();
}

// The kernels, and the one that ends a call that may fault.
KernelVariant rotary_variant(DType type);
KernelVariant scatter_variant();

// Loads what the call needs into a plan. Throws COMPILE, UNAVAILABLE, DEVICE.
void plan_rows(KernelStore& kernels, const Lowering& call, CudaPlan& plan);

// For plans that check on the host: copies positions or write indices from the device, waits for
// the stream and checks them. Throws INVALID_ARGUMENT, DEVICE.
void check_device_rows(const CudaContext& context, const Lowering& call, CUstream stream);

// Queues the call's launches.
void run_rows(const CudaContext& context, const CudaPlan& plan, const Lowering& call,
              CudaSession& session, const Launch& request);

// Rows of (B, H, rows, channels).
struct RowShape {
  DType type;
  int64_t batch, heads, channels;
};

// Queues the copy of all rows of a view to `to`, side by side, by the plan's kernel for scatters;
// `view` then names them there. The end of what was written.
CUdeviceptr copy_rows(const CudaContext& context, const CudaPlan& plan, const RowShape& shape,
                      View4& view, CUdeviceptr to, CudaSession& session, CUstream stream);

}  // namespace attn::cuda
