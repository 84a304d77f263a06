// What introspection shows of Attention.
#include <iterator>

#include "attn_c.h"
#include "ops/attention.h"
#include "ops/slot_schema.h"

namespace attn {
namespace {

using namespace attention;
using namespace schema;

constexpr char kAllFloats[] = "float32,float16,bfloat16,float64";
constexpr char kMasks[] = "bool,float32,float16,bfloat16,float64";

constexpr auto input = named_input<kInputNames>;
constexpr auto output = named_output<kOutputNames>;

constexpr SlotSchema kInputs[] = {
    input(kQ, false, kDevice, kAllFloats, "(B, Hq, S, D) or (B, S, Hq*D)"),
    input(kK, false, kDevice, kAllFloats, "(B, Hkv, N, D) or (B, N, Hkv*D)"),
    input(kV, false, kDevice, kAllFloats, "(B, Hkv, N, Dv) or (B, N, Hkv*Dv)"),
    input(kMask, true, kDevice, kMasks, "(), (T), (S|1, T), (Hq|1, S|1, T), (B|1, Hq|1, S|1, T)"),
    input(kPastKey, true, kDevice, kAllFloats, "(B, Hkv, P, D) or (B, P, Hkv*D)"),
    input(kPastValue, true, kDevice, kAllFloats, "(B, Hkv, P, Dv) or (B, P, Hkv*Dv)"),
    input(kNonpad, true, kAnywhere, "int64", "(B), from version 24 on, without a past"),
};
static_assert(std::size(kInputs) == kInputCount && kInputCount <= kMaxInputs);

constexpr SlotSchema kOutputs[] = {
    output(0, kY, false, -1, kAllFloats, "(B, Hq, S, Dv) or (B, S, Hq*Dv), as Q"),
    output(1, kPresentKey, true, kPastKey, kAllFloats, "(B, Hkv, R, D)"),
    output(2, kPresentValue, true, kPastValue, kAllFloats, "(B, Hkv, R, Dv)"),
    output(3, kScores, true, -1, kAllFloats, "(B, Hq, S, T)"),
    output(ATTN_SLOT_LOG_SUM_EXP, kLogSumExp, true, -1, "float32", "(B, Hq, S)"),
};
static_assert(std::size(kOutputs) == kOutputCount && kOutputCount <= kMaxOutputs);

constexpr AttributeSchema kAttributes[] = {
    {"is_causal", ATTN_ATTRIBUTE_INT, false, "0",
     "1: a query sees the keys up to its own position; 0: all"},
    {"scale", ATTN_ATTRIBUTE_FLOAT, false, "1/sqrt(D)", "factor of the scores, 0 or more"},
    {"q_num_heads", ATTN_ATTRIBUTE_INT, false, "heads of a 4-D Q",
     "query heads; required where Q is 3-D"},
    {"kv_num_heads", ATTN_ATTRIBUTE_INT, false, "heads of a 4-D K or V",
     "key and value heads; required where K and V are 3-D"},
    {"softcap", ATTN_ATTRIBUTE_FLOAT, false, "0", "c of c*tanh(x/c) on the scores; 0: off"},
    {"softmax_precision", ATTN_ATTRIBUTE_INT, false, "1",
     "1, 10, 11 or 16: accepted; the softmax is float32 in any case, float64 for float64"},
    {"qk_matmul_output_mode", ATTN_ATTRIBUTE_INT, false, "0",
     "qk_matmul_output: 0 scaled products, 1 after softcap, 2 after the masks, 3 probabilities"},
    {"left_window_size", ATTN_ATTRIBUTE_INT, false, "-1",
     "keys before its own position that a query sees; -1: all (version 25)"},
    {"right_window_size", ATTN_ATTRIBUTE_INT, false, "-1",
     "keys behind its own position that a query sees; -1: all (version 25)"},
    {"length_from_mask", ATTN_ATTRIBUTE_INT, false, "0",
     "1: with caches of a capacity the keys end where the mask of the last query row ends (an "
     "extension of this library)"},
};

}  // namespace

const OperatorSchema kAttentionSchema = {
    "ai.onnx",
    "Attention",
    23,
    28,
    "scaled dot product attention with masks, key/value caches and score outputs",
    kInputs,
    kOutputs,
    kAttributes};

}  // namespace attn
