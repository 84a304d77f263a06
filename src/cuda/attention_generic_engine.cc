// Everything else: a block a query row.
#include "core/error.h"
#include "cuda/attention_engine_parts.h"

namespace attn::cuda {
namespace {

class Generic final : public AttentionEngine {
 public:
  const char* name() const override { return "generic"; }
  bool supports(const AttentionSpec& spec, const DeviceTraits&,
                std::string* why_not) const override {
    if (!is_16_bit(spec.type) && spec.type != kFloat32) {
      return refuse(why_not, cat(name_of(spec.type), " is not served on CUDA"));
    }
    if (spec.head_size > 1024 || spec.v_head_size > 1024) {
      return refuse(why_not, "head sizes above 1024");
    }
    return true;
  }
  bool takes_rows(const AttentionSpec&, int64_t) const override { return true; }
  bool accepts(const AttentionProblem&) const override { return true; }
  KernelVariant variant(const AttentionSpec& spec, const DeviceTraits&) const override {
    KernelVariant out{"softmax/attention_generic.cu",
                      "attn_attention_generic",
                      {softmax_definitions(spec).front()}};
    out.threads = 128;
    return out;
  }
  size_t partial_bytes(const AttentionSpec&, const ShapeRange&, const DeviceTraits&,
                       bool) const override {
    return 0;
  }
  LaunchShape shape(const AttentionProblem& problem, const DeviceTraits&, bool) const override {
    return {problem.batch * problem.spec.q_heads * problem.query_rows, 1};
  }
  std::string summary(const AttentionSpec&, const DeviceTraits&) const override {
    return "a block a query row";
  }
};

}  // namespace

const AttentionEngine& generic_engine() {
  static const Generic engine;
  return engine;
}

}  // namespace attn::cuda
