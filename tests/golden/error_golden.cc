// Golden cases of calls that are refused: the status, the whole message, and memory left alone.
#include <functional>

#include "attn_c.h"
#include "golden/golden_case.h"

namespace attn::golden {
namespace {

void fill_one(GoldenCase& c, size_t block, double value) {
  const View& view = c.view(block);
  for (int64_t i = 0; i < view.elements(); ++i) view.set_linear(i, value);
}

size_t integers(GoldenCase& c, Type type, const std::vector<int64_t>& values,
                std::vector<int64_t> shape) {
  const size_t block = c.memory(type, std::move(shape));
  for (size_t i = 0; i < values.size(); ++i) {
    c.view(block).set_linear(static_cast<int64_t>(i), static_cast<double>(values[i]));
  }
  return block;
}

// One token of GroupQueryAttention with a cache in place; fields say what is wrong with it.
struct GroupQuery {
  int64_t num_heads = 4, kv_num_heads = 2;
  bool kv_heads_given = true, lengths = true;
  Type key_type = Type::kFloat32;
  int64_t value_width = 16, last = 4, total = 5;
  bool output_over_query = false, output = true;
  std::function<void(GoldenCase&)> more = [](GoldenCase&) {};
};

GoldenCase group_query(const char* name, const char* about, const GroupQuery& form) {
  GoldenCase c(name, about, "com.microsoft", "GroupQueryAttention", 1);
  c.set_int("num_heads", form.num_heads);
  if (form.kv_heads_given) c.set_int("kv_num_heads", form.kv_num_heads);
  const size_t query = c.memory(Type::kFloat32, {2, 1, 32});
  const size_t key = c.memory(form.key_type, {2, 1, 16});
  const size_t value = c.memory(Type::kFloat32, {2, 1, form.value_width});
  const size_t keys = c.memory(Type::kFloat32, {2, 2, 8, 8});
  const size_t values = c.memory(Type::kFloat32, {2, 2, 8, 8});
  for (const size_t block : {query, key, value, keys, values}) fill_one(c, block, 0.5);
  c.input(0, "query", query);
  c.input(1, "key", key);
  c.input(2, "value", value);
  c.input(3, "past_key", keys);
  c.input(4, "past_value", values);
  if (form.lengths) c.input(5, "seqlens_k", integers(c, Type::kInt32, {2, form.last}, {2}));
  c.input(6, "total_sequence_length", integers(c, Type::kInt32, {form.total}, {}));
  if (form.output_over_query) {
    c.output(0, "output", query);
  } else if (form.output) {
    c.output(0, "output", c.memory(Type::kFloat32, {2, 1, 32}));
  }
  c.output(1, "present_key", keys);
  c.output(2, "present_value", values);
  form.more(c);
  return c;
}

GoldenCase rotary(int64_t position) {
  GoldenCase c("error_position", "a position outside the tables", "ai.onnx", "RotaryEmbedding", 23);
  const size_t x = c.memory(Type::kFloat32, {1, 2, 3, 4});
  const size_t cosine = c.memory(Type::kFloat32, {5, 2}), sine = c.memory(Type::kFloat32, {5, 2});
  for (const size_t block : {x, cosine, sine}) fill_one(c, block, 0.25);
  c.input(0, "X", x);
  c.input(1, "cos_cache", cosine);
  c.input(2, "sin_cache", sine);
  c.input(3, "position_ids", integers(c, Type::kInt64, {0, position, 2}, {1, 3}));
  c.output(0, "Y", c.memory(Type::kFloat32, {1, 2, 3, 4}));
  return c;
}

GoldenCase scatter() {
  GoldenCase c("error_write_index", "an index beyond the cache, by a plan", "ai.onnx",
               "TensorScatter", 24);
  const size_t past = c.memory(Type::kFloat16, {2, 1, 6, 4});
  const size_t update = c.memory(Type::kFloat16, {2, 1, 2, 4});
  fill_one(c, past, 1);
  fill_one(c, update, 2);
  c.input(0, "past_cache", past);
  c.input(1, "update", update);
  c.input(2, "write_indices", integers(c, Type::kInt64, {4, 5}, {2}));
  c.output(0, "present_cache", past);
  c.by_plan();
  return c;
}

GoldenCase packed() {
  GoldenCase c("error_cumulative_lengths", "sequences that run backwards", "pkg.nxrt",
               "PackedVarlenAttention", 1);
  c.set_int("num_heads", 2);
  const size_t tokens[] = {c.memory(Type::kFloat32, {6, 2, 4}), c.memory(Type::kFloat32, {6, 2, 4}),
                           c.memory(Type::kFloat32, {6, 2, 4})};
  const char* const names[] = {"query", "key", "value"};
  for (uint32_t slot = 0; slot < 3; ++slot) {
    fill_one(c, tokens[slot], 0.5);
    c.input(slot, names[slot], tokens[slot]);
  }
  c.input(3, "cu_seqlens_q", integers(c, Type::kInt32, {0, 4, 3, 6}, {4}));
  c.output(0, "output", c.memory(Type::kFloat32, {6, 2, 4}));
  return c;
}

GoldenCase linear() {
  GoldenCase c("error_missing_gate", "a rule without the gate that it needs", "ai.onnx",
               "LinearAttention", 27);
  c.set_int("q_num_heads", 2);
  c.set_int("kv_num_heads", 2);
  const char* const names[] = {"query", "key", "value"};
  for (uint32_t slot = 0; slot < 3; ++slot) {
    const size_t block = c.memory(Type::kFloat32, {1, 3, 8});
    fill_one(c, block, 0.5);
    c.input(slot, names[slot], block);
  }
  c.output(0, "output", c.memory(Type::kFloat32, {1, 3, 8}));
  return c;
}

GoldenCase attention() {
  GoldenCase c("error_windows_too_early", "an attribute of a later version", "ai.onnx", "Attention",
               23);
  c.set_int("left_window_size", 2);
  return c;
}

GoldenCase unknown() {
  return {"error_unknown_operator", "an operator that the library does not know", "com.microsoft",
          "NoSuchAttention", 1};
}

GoldenCase refused(GoldenCase c, int32_t status, const char* message) {
  c.expect_error(status, message);
  return c;
}

}  // namespace

void add_errors(std::vector<GoldenCase>& cases) {
  const auto add = [&cases](GoldenCase c, int32_t status, const char* message) {
    cases.push_back(refused(std::move(c), status, message));
  };
  add(unknown(), ATTN_UNSUPPORTED,
      "NoSuchAttention 'golden': no operator 'NoSuchAttention' in domain 'com.microsoft'");
  add(attention(), ATTN_INVALID_ARGUMENT,
      "Attention 'golden': attribute 'left_window_size': expected -1 in version 23 (windows are of "
      "version 25); got 2");
  add(group_query("error_missing_attribute", "a required attribute is absent",
                  {.kv_heads_given = false}),
      ATTN_INVALID_ARGUMENT,
      "GroupQueryAttention 'golden': attribute 'kv_num_heads' is required (INT: key and value "
      "heads)");
  add(group_query("error_head_counts", "query heads that the key heads do not divide",
                  {.num_heads = 3}),
      ATTN_INVALID_ARGUMENT,
      "GroupQueryAttention 'golden': attribute 'num_heads': expected a multiple of kv_num_heads 2; "
      "got 3");
  add(group_query("error_attribute_value", "an attribute outside its range",
                  {.more = [](GoldenCase& c) { c.set_float("softcap", -1); }}),
      ATTN_INVALID_ARGUMENT,
      "GroupQueryAttention 'golden': attribute 'softcap': expected 0 (off) or more; got -1");
  add(group_query("error_quantised_cache", "what is legal and not built",
                  {.more = [](GoldenCase& c) { c.set_text("k_quant_type", "PER_TENSOR"); }}),
      ATTN_UNSUPPORTED,
      "GroupQueryAttention 'golden': attribute 'k_quant_type': quantised caches are not built; "
      "expected NONE; got PER_TENSOR");
  add(group_query("error_element_type", "a key of another type than the query",
                  {.key_type = Type::kFloat16}),
      ATTN_INVALID_ARGUMENT,
      "GroupQueryAttention 'golden': key: expected float32, the type of query; got float16");
  add(group_query("error_shape", "a value that is narrower than the key", {.value_width = 8}),
      ATTN_INVALID_ARGUMENT,
      "GroupQueryAttention 'golden': value: expected shape (B, N, Hkv*D) = (2, 1, 16); got (2, 1, "
      "8)");
  add(group_query("error_missing_input", "a required input is absent", {.lengths = false}),
      ATTN_INVALID_ARGUMENT,
      "GroupQueryAttention 'golden': seqlens_k: the input in slot 5 is required and absent");
  add(group_query("error_missing_output", "the required output is absent", {.output = false}),
      ATTN_INVALID_ARGUMENT,
      "GroupQueryAttention 'golden': output: the output in slot 0 is required and absent");
  add(group_query("error_length", "more keys than the cache has rows", {.last = 9, .total = 10}),
      ATTN_INVALID_ARGUMENT,
      "GroupQueryAttention 'golden': seqlens_k[1] is 9, a total of 10 keys (seqlens_k holds totals "
      "minus 1): past reaches beyond the past buffer; 9 of them are past keys, the past buffer "
      "holds 8");
  add(group_query("error_overlap", "the output in the memory of the query",
                  {.output_over_query = true}),
      ATTN_INVALID_ARGUMENT,
      "GroupQueryAttention 'golden': output: shares memory with query; they must not overlap");
  add(group_query("error_engine", "no engine has the name that is forced",
                  {.more =
                       [](GoldenCase& c) {
                         c.by_plan();
                         c.force_engine("no-such-engine");
                       }}),
      ATTN_INVALID_ARGUMENT,
      "GroupQueryAttention 'golden': engine is 'no-such-engine', which is no engine of this "
      "context");
  add(rotary(5), ATTN_INVALID_ARGUMENT,
      "RotaryEmbedding 'golden': position_ids[0, 1] is 5: a position lies outside the rotary "
      "table, which has 5 rows");
  add(scatter(), ATTN_INVALID_ARGUMENT,
      "TensorScatter 'golden': write_indices[1] is 5: a write index lies outside the cache; the 2 "
      "new rows fit a cache of 6 rows at 0 to 4");
  add(packed(), ATTN_INVALID_ARGUMENT,
      "PackedVarlenAttention 'golden': cu_seqlens_q[1] and [2] are 4 and 3: cumulative lengths do "
      "not ascend or reach beyond the tokens, of which there are 6");
  add(linear(), ATTN_INVALID_ARGUMENT,
      "LinearAttention 'golden': decay: expected a tensor of shape (B, T, Hkv) or (B, T, Hkv*dk), "
      "since update_rule is gated_delta; got none");
}

}  // namespace attn::golden
