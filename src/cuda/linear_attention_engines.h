// The kernels of linear attention as engines: plans and launches of their own, of one kernel each.
#pragma once

#include <span>
#include <string>

#include "common/linear_params.h"
#include "core/backend.h"
#include "cuda/cuda_context.h"
#include "cuda/cuda_plan.h"
#include "cuda/kernel_variant.h"

namespace attn::cuda {

class LinearAttentionEngine {
 public:
  virtual ~LinearAttentionEngine() = default;
  virtual const char* name() const = 0;
  // Whether every problem of this spec can run; else one line why not.
  virtual bool supports(const LinearAttentionSpec& spec, const DeviceTraits& device,
                        std::string* why_not) const = 0;
  // Whether it takes these strides and addresses.
  virtual bool accepts(const LinearAttentionProblem& problem) const = 0;
  virtual KernelVariant variant(const LinearAttentionSpec& spec,
                                const DeviceTraits& device) const = 0;
  // Columns of a state that a block carries.
  virtual int columns(const LinearAttentionSpec& spec) const = 0;
  virtual size_t scratch_bytes(const LinearAttentionSpec& spec, const ShapeRange& range) const = 0;
  // For describe.
  virtual std::string summary(const LinearAttentionSpec& spec,
                              const DeviceTraits& device) const = 0;
};

// In order of preference.
std::span<const LinearAttentionEngine* const> linear_attention_engines();

bool is_linear_attention_name(const std::string& name);

// As can_plan and make_plan, for calls of linear attention.
bool can_plan_linear_attention(const DeviceTraits& device, const LinearAttentionSpec& spec,
                               const PlanRequest& request, std::string* reason);
std::shared_ptr<const CudaPlan> plan_linear_attention(const CudaContext& context,
                                                      KernelStore& kernels,
                                                      const LinearAttentionProblem& problem,
                                                      const ShapeRange& range,
                                                      const PlanRequest& request);

// Launches the first engine of the plan that takes the problem; `scratch` is the plan's workspace.
void launch_linear_attention(const Driver& driver, const CudaPlan& plan,
                             const LinearAttentionProblem& problem, attnk::FaultState* faults,
                             CUdeviceptr scratch, CUstream stream);

}  // namespace attn::cuda
