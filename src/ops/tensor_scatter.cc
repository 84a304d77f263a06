#include "ops/tensor_scatter.h"

#include <iterator>

#include "attn_c.h"
#include "core/error.h"
#include "ops/shape_check.h"

namespace attn {
namespace scatter {
namespace {

constexpr uint32_t kDevice = ATTN_MEMORY_DEVICE;
constexpr char kCacheShape[] = "(B, ..., L, ...) with the L rows on `axis`";

constexpr SlotSchema input(Input slot, bool optional, const char* types, const char* shape) {
  return {static_cast<uint32_t>(slot), kInputNames[slot], optional, kDevice, -1, types, shape};
}

constexpr SlotSchema kInputs[] = {
    input(kPastCache, false, kTypeNames, kCacheShape),
    input(kUpdate, false, kTypeNames, "(B, ..., N, ...), N <= L"),
    input(kWriteIndices, true, "int64", "(B)"),
};
static_assert(std::size(kInputs) == kInputCount && kInputCount <= kMaxInputs);

constexpr SlotSchema kOutputs[] = {
    {0, kOutputName, false, kDevice, kPastCache, kTypeNames, "the shape of past_cache"},
};
static_assert(std::size(kOutputs) == kOutputCount && kOutputCount <= kMaxOutputs);

constexpr AttributeSchema kAttributes[] = {
    {"mode", ATTN_ATTRIBUTE_STRING, false, "linear",
     "linear: the new rows lie in the cache; circular: row numbers count modulo L"},
    {"axis", ATTN_ATTRIBUTE_INT, false, "-2", "of the rows; not the batch axis 0"},
};

Settings read_settings(const Attributes& attributes) {
  Settings settings;
  const std::string_view mode = attributes.text("mode", "linear");
  if (mode != "linear" && mode != "circular") {
    fail_argument("attribute 'mode': expected linear or circular; got '", mode, "'");
  }
  settings.circular = mode == "circular";
  settings.axis = attributes.integer("axis", -2);
  if (settings.axis == 0 || settings.axis >= kMaxRank || settings.axis < -kMaxRank) {
    fail_argument("attribute 'axis': expected 1 to ", kMaxRank - 1, " or, from the end, -1 to ",
                  -(kMaxRank - 1), " (0 is the batch axis); got ", settings.axis);
  }
  return settings;
}

class TensorScatter final : public Operator {
 public:
  explicit TensorScatter(const Settings& settings) : settings_(settings) {}

  const OperatorSchema& schema() const override { return kTensorScatterSchema; }

  void lower(const Arguments& arguments, LowerMode mode, Lowering& out) const override {
    if (mode != LowerMode::kQuery) {
      check_present(kOutputName, arguments.out[kPresentCache], "(B, ..., L, ...)");
    }
    const Sizes sizes = check_inputs(settings_, arguments);
    check_output(arguments);
    scatter::lower(settings_, sizes, arguments, out);
  }

  bool infer(const Arguments& arguments, int position, Tensor& out) const override {
    check_inputs(settings_, arguments);
    if (position != kPresentCache) {
      throw_error(ATTN_INTERNAL, cat("TensorScatter has no output position ", position));
    }
    const Tensor& past = arguments.in[kPastCache];
    out.type = past.type;
    out.rank = past.rank;
    out.shape = past.shape;
    return false;
  }

 private:
  Settings settings_;
};

}  // namespace
}  // namespace scatter

const OperatorSchema kTensorScatterSchema = {
    "ai.onnx",
    "TensorScatter",
    24,
    28,  // the latest operator set whose TensorScatter is the one of 24
    "writes new rows into a cache, at an index of their own for each batch row",
    scatter::kInputs,
    scatter::kOutputs,
    scatter::kAttributes};

std::unique_ptr<Operator> create_tensor_scatter(const Attributes& attributes,
                                                int32_t /*version: there is one*/) {
  return std::make_unique<scatter::TensorScatter>(scatter::read_settings(attributes));
}

}  // namespace attn
