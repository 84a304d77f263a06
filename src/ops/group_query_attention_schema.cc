// What introspection shows of GroupQueryAttention.
#include <iterator>

#include "attn_c.h"
#include "ops/group_query_attention.h"
#include "ops/slot_schema.h"

namespace attn {
namespace {

using namespace gqa;
using namespace schema;

constexpr auto input = named_input<kInputNames>;
constexpr auto output = named_output<kOutputNames>;

constexpr SlotSchema kInputs[] = {
    input(kQuery, false, kDevice, kFloats, "(B, S, Hq*D), packed (B, S, (Hq + 2*Hkv)*D)"),
    input(kKey, true, kDevice, kFloats, "(B, N, Hkv*D)"),
    input(kValue, true, kDevice, kFloats, "(B, N, Hkv*D)"),
    input(kPastKey, true, kDevice, kFloats, "(B, Hkv, P, D)"),
    input(kPastValue, true, kDevice, kFloats, "(B, Hkv, P, D)"),
    input(kSeqlensK, false, kAnywhere, "int32", "(B), (B, 1) or, when B is 1, ()"),
    input(kTotalLength, false, kAnywhere, "int32", "one element of any rank"),
    input(kCosCache, true, kDevice, kFloats, "(positions, width/2)"),
    input(kSinCache, true, kDevice, kFloats, "(positions, width/2)"),
    input(kPositionIds, true, kDevice, "int64", "(B, S)"),
    input(kAttentionBias, true, kDevice, kFloats, "(B|1, Hq|1, S|1, >= total_sequence_length)"),
    input(kHeadSink, true, kDevice, kFloats, "(Hq)"),
    input(kKScale, true, kDevice, "float32", "refused: there is no quantised cache"),
    input(kVScale, true, kDevice, "float32", "refused: there is no quantised cache"),
    input(kQNormWeight, true, kDevice, kFloats, "(D)"),
    input(kKNormWeight, true, kDevice, kFloats, "(D)"),
    input(kQuerySeqlens, true, kDevice, "int32", "refused: not built"),
};
static_assert(std::size(kInputs) == kInputCount && kInputCount <= kMaxInputs);

constexpr SlotSchema kOutputs[] = {
    output(0, kOutput, false, -1, kFloats, "(B, S, Hq*D)"),
    output(1, kPresentKey, true, kPastKey, kFloats, "(B, Hkv, L, D)"),
    output(2, kPresentValue, true, kPastValue, kFloats, "(B, Hkv, L, D)"),
    output(3, kOutputQk, true, -1, kFloats, "(B, Hq, S, total_sequence_length)"),
    output(ATTN_SLOT_LOG_SUM_EXP, kLogSumExp, true, -1, "float32", "(B, Hq, S)"),
};
static_assert(std::size(kOutputs) == kOutputCount && kOutputCount <= kMaxOutputs);

constexpr AttributeSchema kAttributes[] = {
    {"num_heads", ATTN_ATTRIBUTE_INT, true, "", "query heads, a multiple of kv_num_heads"},
    {"kv_num_heads", ATTN_ATTRIBUTE_INT, true, "", "key and value heads"},
    {"causal", ATTN_ATTRIBUTE_INT, false, "1",
     "1: a query sees the keys up to its own position; 0: all"},
    {"scale", ATTN_ATTRIBUTE_FLOAT, false, "0", "factor of the scores; 0: 1/sqrt(D)"},
    {"softcap", ATTN_ATTRIBUTE_FLOAT, false, "0", "c of c*tanh(x/c) on the scores; 0: off"},
    {"local_window_size", ATTN_ATTRIBUTE_INT, false, "-1",
     "keys that a query sees, its own included; -1: all"},
    {"do_rotary", ATTN_ATTRIBUTE_INT, false, "0", "1: rotary embedding of queries and new keys"},
    {"rotary_interleaved", ATTN_ATTRIBUTE_INT, false, "0",
     "1: channel pairs (2i, 2i+1); 0: (i, i + width/2)"},
    {"smooth_softmax", ATTN_ATTRIBUTE_INT, false, "-1",
     "1: exp(0) joins the denominator; -1 and 0: off"},
    {"qk_output", ATTN_ATTRIBUTE_INT, false, "0",
     "output_qk: 0 none, 1 scores before softmax, 2 probabilities"},
    {"qk_norm_epsilon", ATTN_ATTRIBUTE_FLOAT, false, "1e-06",
     "of the RMS norms of queries and keys"},
    {"q_norm_epsilon", ATTN_ATTRIBUTE_FLOAT, false, "qk_norm_epsilon", "of the norm of queries"},
    {"k_norm_epsilon", ATTN_ATTRIBUTE_FLOAT, false, "qk_norm_epsilon", "of the norm of keys"},
    {"empty_slots", ATTN_ATTRIBUTE_INT, false, "0",
     "1: -1 in seqlens_k is a batch row without a sequence (an extension of this library)"},
    {"sliding_window_cache", ATTN_ATTRIBUTE_INT, false, "0", "0; a rolling cache is not built"},
    {"k_quant_type", ATTN_ATTRIBUTE_STRING, false, "NONE", "NONE; quantised caches are not built"},
    {"v_quant_type", ATTN_ATTRIBUTE_STRING, false, "NONE", "NONE; quantised caches are not built"},
    {"kv_cache_bit_width", ATTN_ATTRIBUTE_INT, false, "0", "0; quantised caches are not built"},
};

}  // namespace

const OperatorSchema kGroupQueryAttentionSchema = {
    "com.microsoft",
    "GroupQueryAttention",
    1,
    1,
    "attention with grouped key/value heads and a key/value cache; norm, rotary embedding and "
    "append included",
    kInputs,
    kOutputs,
    kAttributes};

}  // namespace attn
