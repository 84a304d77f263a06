// How one shape class runs on a CUDA device: its kernels, loaded, and the report of the choice.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/backend.h"
#include "cuda/attention_engines.h"
#include "cuda/kernel_store.h"

namespace attn::cuda {

// Scratch of one execute: the resolved lengths of the batch rows, the lengths that come from host
// memory, then the partial results.
inline size_t rows_bytes(int64_t batch) {
  return (static_cast<size_t>(batch) * sizeof(attnk::RowLengths) + 255) / 256 * 256;
}

// Refuses a range whose workspace no device addresses.
void check_workspace(size_t bytes, const ShapeRange& range);

class LinearAttentionEngine;  // linear_attention_engines.h

struct LinearAttentionChoice {
  const LinearAttentionEngine* engine;
  const LoadedKernel* kernel;
};

struct AttentionChoice {
  const AttentionEngine* engine;
  const LoadedKernel* kernel;
};

class CudaPlan final : public BackendPlan {
 public:
  size_t workspace_bytes() const override { return workspace; }
  std::vector<StageReport> report() const override { return stages; }
  bool capturable() const override { return !check_on_host; }
  std::string capture_reason() const override;

  ShapeRange range;
  size_t workspace = 0;
  bool check_on_host = false;
  bool batch_invariant = false;
  // Of the KV update, or of packed lengths: what resolves the lengths of every call.
  const LoadedKernel* lengths = nullptr;
  // Of the operators that have this kernel alone; of caches that grow in their own memory, the one
  // that brings past rows to scratch.
  const LoadedKernel* rows = nullptr;
  const LoadedKernel* end_call = nullptr;
  const LoadedKernel* store_lengths = nullptr;          // where lengths come from host memory
  size_t partials_offset = 0, moved_offset = 0;         // in scratch
  std::vector<AttentionChoice> attention;               // the first that accepts a call runs it
  std::vector<LinearAttentionChoice> linear_attention;  // likewise; such a plan has nothing else
  std::vector<StageReport> stages;
};

// Names that may be forced.
std::vector<std::string> all_engine_names();

// Whether `call` has a plan; otherwise the reason.
bool can_plan(const CudaContext& context, const Lowering& call, const PlanRequest& request,
              std::string* reason);

// Plans and loads. Throws INVALID_ARGUMENT (unknown engine), UNSUPPORTED, COMPILE, UNAVAILABLE.
std::shared_ptr<const CudaPlan> make_plan(const CudaContext& context, KernelStore& kernels,
                                          const Lowering& call, const ShapeRange& range,
                                          const PlanRequest& request);

// A kernel of session/session.cu: attn_end_call, attn_clear_faults, attn_store_lengths.
KernelVariant session_variant(const char* entry);
KernelVariant kv_update_variant(DType type, int channels);
KernelVariant packed_lengths_variant(DType type);

}  // namespace attn::cuda
