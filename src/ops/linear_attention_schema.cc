// What introspection shows of LinearAttention, in both domains.
#include <iterator>

#include "attn_c.h"
#include "ops/linear_attention.h"

namespace attn {
namespace {

using namespace linear;

constexpr char kFloats[] = "float32,float16,bfloat16";
constexpr uint32_t kDevice = ATTN_MEMORY_DEVICE;

constexpr SlotSchema input(Input slot, bool optional, const char* shape) {
  return {static_cast<uint32_t>(slot), kInputNames[slot], optional, kDevice, -1, kFloats, shape};
}

constexpr SlotSchema kInputs[] = {
    input(kQuery, false, "(B, T, Hq*dk)"),
    input(kKey, false, "(B, T, Hk*dk); ai.onnx: Hk is Hkv"),
    input(kValue, false, "(B, T, Hkv*dv)"),
    input(kPastState, true, "(B, Hkv, dk, dv)"),
    input(kDecay, true, "(B, T, Hkv*dk) or (B, T, Hkv)"),
    input(kBeta, true, "(B, T, Hkv) or (B, T, 1)"),
    input(kDtBias, true, "as many elements as decay has a token, of any rank"),
    input(kDecayScale, true, "as many elements as decay has a token, of any rank"),
};
static_assert(std::size(kInputs) == kInputCount && kInputCount <= kMaxInputs);

constexpr SlotSchema kOutputs[] = {
    {0, kOutputNames[kOutput], false, kDevice, -1, kFloats, "(B, T, max(Hq, Hkv)*dv)"},
    {1, kOutputNames[kPresentState], true, kDevice, kPastState, kFloats, "(B, Hkv, dk, dv)"},
};
static_assert(std::size(kOutputs) == kOutputCount && kOutputCount <= kMaxOutputs);

constexpr AttributeSchema integer(const char* name, const char* otherwise, const char* summary) {
  return {name, ATTN_ATTRIBUTE_INT, false, otherwise, summary};
}
constexpr const char* kFoldBetaWords = "not 0: beta = sigmoid(beta), where the rule has a beta";
constexpr const char* kFoldDecayWords =
    "not 0: decay = neg_exp_A * softplus(decay + dt_bias), where the rule has a decay";
constexpr const char* kFoldExpWords = "not 0: input 7 is A_log, and neg_exp_A = -exp(A_log)";

constexpr AttributeSchema kHeads[] = {
    {"q_num_heads", ATTN_ATTRIBUTE_INT, true, "", "heads of query"},
    {"kv_num_heads", ATTN_ATTRIBUTE_INT, true, "", "heads of value and state"},
    {"update_rule", ATTN_ATTRIBUTE_STRING, false, "gated_delta",
     "linear, gated, delta or gated_delta"},
    {"scale", ATTN_ATTRIBUTE_FLOAT, false, "0", "of the output; 0: 1/sqrt(dk)"},
    integer("chunk_size", "64", "a hint, without effect on results"),
    integer(kFoldBeta.plain, "0", kFoldBetaWords),
    integer(kFoldDecay.plain, "0", kFoldDecayWords),
    integer(kFoldExp.plain, "0", kFoldExpWords),
    integer(kFoldBeta.prefixed, "0", kFoldBetaWords),
    integer(kFoldDecay.prefixed, "0", kFoldDecayWords),
    integer(kFoldExp.prefixed, "0", kFoldExpWords),
    integer("state_window", "0", "0; kept states of earlier tokens are not built"),
};
// The last attribute is com.microsoft's alone.
constexpr std::span<const AttributeSchema> kStandardAttributes(kHeads, std::size(kHeads) - 1);

constexpr char kSummary[] =
    "linear attention: a recurrence with a state of dk x dv a head, with decay and delta rule";

}  // namespace

const OperatorSchema kLinearAttentionSchema = {
    "com.microsoft", "LinearAttention", 1, 1, kSummary, kInputs, kOutputs, kHeads};

// The standard's version 27 is the only one so far.
const OperatorSchema kStandardLinearAttentionSchema = {
    "ai.onnx", "LinearAttention", 27, 27, kSummary, kInputs, kOutputs, kStandardAttributes};

}  // namespace attn
