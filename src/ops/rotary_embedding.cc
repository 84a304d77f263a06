#include "ops/rotary_embedding.h"

#include <iterator>
#include <limits>

#include "attn_c.h"
#include "core/error.h"
#include "ops/shape_check.h"

namespace attn {
namespace rotary {
namespace {

constexpr char kFloats[] = "float32,float16,bfloat16";
constexpr uint32_t kDevice = ATTN_MEMORY_DEVICE;

constexpr SlotSchema input(Input slot, bool optional, const char* types, const char* shape) {
  return {static_cast<uint32_t>(slot), kInputNames[slot], optional, kDevice, -1, types, shape};
}

constexpr SlotSchema kInputs[] = {
    input(kX, false, kFloats, "(B, H, S, D) or (B, S, H*D)"),
    input(kCosCache, false, kFloats, "(positions, width/2), or (B, S, width/2) without positions"),
    input(kSinCache, false, kFloats, "(positions, width/2), or (B, S, width/2) without positions"),
    input(kPositionIds, true, "int64", "(B, S)"),
};
static_assert(std::size(kInputs) == kInputCount && kInputCount <= kMaxInputs);

constexpr SlotSchema kOutputs[] = {
    {0, kOutputName, false, kDevice, kX, kFloats, "the shape of X"},
};
static_assert(std::size(kOutputs) == kOutputCount && kOutputCount <= kMaxOutputs);

constexpr AttributeSchema kAttributes[] = {
    {"interleaved", ATTN_ATTRIBUTE_INT, false, "0",
     "1: channel pairs (2i, 2i+1); 0: (i, i + width/2)"},
    {"rotary_embedding_dim", ATTN_ATTRIBUTE_INT, false, "0",
     "width: rotated channels of a head, even; 0: all"},
    {"num_heads", ATTN_ATTRIBUTE_INT, false, "0", "heads; required where X has rank 3"},
};

Settings read_settings(const Attributes& attributes) {
  Settings settings;
  // The standard takes any number for true; 1 is what models have.
  settings.interleaved = attributes.integer("interleaved", 0) != 0;
  settings.width = attributes.integer("rotary_embedding_dim", 0);
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max();
  if (settings.width < 0 || settings.width % 2 != 0 || settings.width > kLargest) {
    fail_argument("attribute 'rotary_embedding_dim': expected 0 (all channels) or an even number ",
                  "up to the head size; got ", settings.width);
  }
  settings.heads = attributes.integer("num_heads", 0);
  if (settings.heads < 0 || settings.heads > kLargest) {
    fail_argument("attribute 'num_heads': expected 0 (not stated) to ", kLargest, "; got ",
                  settings.heads);
  }
  return settings;
}

class RotaryEmbedding final : public Operator {
 public:
  explicit RotaryEmbedding(const Settings& settings) : settings_(settings) {}

  const OperatorSchema& schema() const override { return kRotaryEmbeddingSchema; }

  void lower(const Arguments& arguments, LowerMode mode, Lowering& out) const override {
    if (mode != LowerMode::kQuery) {
      check_present(kOutputName, arguments.out[kY], "(B, H, S, D) or (B, S, H*D)");
    }
    const Sizes sizes = check_inputs(settings_, arguments);
    check_output(arguments);
    rotary::lower(settings_, sizes, arguments, out);
  }

  bool infer(const Arguments& arguments, int position, Tensor& out) const override {
    check_inputs(settings_, arguments);
    if (position != kY) {
      throw_error(ATTN_INTERNAL, cat("RotaryEmbedding has no output position ", position));
    }
    const Tensor& x = arguments.in[kX];
    out.type = x.type;
    out.rank = x.rank;
    out.shape = x.shape;
    return false;
  }

 private:
  Settings settings_;
};

}  // namespace
}  // namespace rotary

const OperatorSchema kRotaryEmbeddingSchema = {
    "ai.onnx",
    "RotaryEmbedding",
    23,
    28,  // the latest operator set whose RotaryEmbedding is the one of 23
    "rotary position embedding of queries or keys",
    rotary::kInputs,
    rotary::kOutputs,
    rotary::kAttributes};

std::unique_ptr<Operator> create_rotary_embedding(const Attributes& attributes,
                                                  int32_t /*version: there is one*/) {
  return std::make_unique<rotary::RotaryEmbedding>(rotary::read_settings(attributes));
}

}  // namespace attn
