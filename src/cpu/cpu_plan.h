// How one shape class runs on the CPU: which engines, how much scratch, and the report of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/backend.h"
#include "cpu/engine.h"
#include "cpu/linear_attention.h"
#include "cpu/rotary.h"
#include "cpu/scatter.h"

namespace attn::cpu {

// Scratch of one execute: the lengths of the batch rows, then what the running stage needs. All
// pieces begin on cache lines; the caller's memory may begin anywhere.
inline constexpr size_t kScratchAlignment = 64;
inline size_t rows_bytes(int64_t batch) {
  const size_t bytes = static_cast<size_t>(batch) * sizeof(RowLengths);
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

class CpuPlan final : public BackendPlan {
 public:
  size_t workspace_bytes() const override { return workspace_bytes_; }
  std::vector<StageReport> report() const override { return report_; }
  bool capturable() const override { return false; }
  std::string capture_reason() const override;

  const ShapeRange& range() const { return range_; }
  const KvUpdateEngine* kv_update() const { return kv_update_; }
  const RotaryEngine* rotary() const { return rotary_; }
  const ScatterEngine* scatter() const { return scatter_; }
  // In order of preference: the first that prefers a call's tokens runs it, or else the last.
  const std::vector<const LinearAttentionEngine*>& linear_attention() const {
    return linear_attention_;
  }
  // In order of preference: the first that accepts a call's shapes runs it.
  const std::vector<const AttentionEngine*>& attention() const { return attention_; }

 private:
  friend class Planner;
  ShapeRange range_;
  const KvUpdateEngine* kv_update_ = nullptr;
  const RotaryEngine* rotary_ = nullptr;
  const ScatterEngine* scatter_ = nullptr;
  std::vector<const LinearAttentionEngine*> linear_attention_;
  std::vector<const AttentionEngine*> attention_;
  size_t workspace_bytes_ = 0;
  std::vector<StageReport> report_;
};

// What plans of one back end have in common. Stateless; any thread.
struct PlanContext {
  SimdLevel level = SimdLevel::kGeneric;
  int concurrency = 1;
};

// Whether `call` has a plan; otherwise the reason. Sizes of -1 mean any.
bool can_plan(const PlanContext& context, const Lowering& call, const PlanRequest& request,
              std::string* reason);

// Throws INVALID_ARGUMENT for an engine name that does not exist (it lists those that do), and
// UNSUPPORTED, with the reasons of all engines, where nothing runs the call.
std::shared_ptr<const CpuPlan> make_plan(const PlanContext& context, const Lowering& call,
                                         const ShapeRange& range, const PlanRequest& request);

// Of engines that support `spec`, at least one and in order: the one that runs so many tokens.
const LinearAttentionEngine& choose_linear_attention(
    const std::vector<const LinearAttentionEngine*>& engines, const LinearAttentionSpec& spec,
    int64_t tokens, SimdLevel level);

// All names that PlanRequest::engine may be.
std::vector<std::string> all_engine_names();

}  // namespace attn::cpu
