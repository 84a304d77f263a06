#include "matrix/linear_case.h"

#include <cmath>
#include <sstream>

namespace attn::matrix {

using namespace linear;

const char* rule_of(const LinearOutline& outline) {
  if (outline.delta) return outline.gated ? "gated_delta" : "delta";
  return outline.gated ? "gated" : "linear";
}

const test::Tensor& LinearCase::target(uint32_t output) const {
  return output == kPresentState && outline.in_place ? in[kPastState] : out[output];
}

std::set<std::string> LinearCase::features() const {
  const LinearOutline& o = outline;
  std::set<std::string> set = {rule_of(o), "state " + test::name_of(o.state_type),
                               o.standard ? "ai.onnx" : "com.microsoft"};
  const auto add = [&set](bool has, const char* feature) {
    if (has) set.insert(feature);
  };
  add(o.gated && o.decay_per_key, "decay per key");
  add(o.gated && !o.decay_per_key, "decay per head");
  add(o.delta && o.beta_shared, "shared beta");
  add(o.fold_beta, "folded beta");
  add(o.fold_decay, "folded decay");
  add(o.fold_exp, "folded exp");
  add(o.q_heads > o.kv_heads, "grouped heads");
  add(o.q_heads < o.kv_heads, "inverse groups");
  add(o.key_heads < o.kv_heads, "shared keys");
  add(o.in_place, "in place");
  add(o.past && !o.in_place, "past");
  add(!o.past, "no past");
  add(!o.present, "no present");
  add(o.tokens == 0, "no tokens");
  add(o.tokens == 1, "one token");
  add(o.tokens > 64, "more than 64 tokens");
  add(o.batch == 0, "no batch rows");
  add(o.head_size != o.v_head_size, "dk is not dv");
  add(o.head_size > 128, "dk above 128");
  add(o.odd_layouts, "odd layouts");
  add(o.scale < 0, "negative scale");
  add(o.keys == KeyKind::kEqual, "equal keys");
  add(o.decays == DecayKind::kStrong, "strong decay");
  return set;
}

std::string LinearCase::text() const {
  const LinearOutline& o = outline;
  std::ostringstream line;
  line << test::name_of(o.type) << " " << rule_of(o) << (o.standard ? " ai.onnx" : " com.microsoft")
       << " B" << o.batch << " T" << o.tokens << " heads " << o.q_heads << "/" << o.key_heads << "/"
       << o.kv_heads << " dk " << o.head_size << " dv " << o.v_head_size << " scale " << o.scale
       << " state " << test::name_of(o.state_type)
       << (o.in_place ? " in place"
           : o.past   ? " past"
                      : "")
       << (o.present ? "" : " no present")
       << (o.gated ? o.decay_per_key ? " decay per key" : " decay per head" : "") << " kind "
       << static_cast<int>(o.decays) << (o.beta_shared ? " shared beta" : "")
       << (o.beta >= 0 ? " beta " + std::to_string(o.beta) : "") << " keys "
       << static_cast<int>(o.keys) << (o.fold_beta ? " fold beta" : "")
       << (o.fold_decay ? " fold decay" : "") << (o.fold_exp ? " fold exp" : "")
       << (o.odd_layouts ? " odd layouts" : "");
  return line.str();
}

test::Attributes LinearCase::attributes() const {
  const LinearOutline& o = outline;
  test::Attributes list;
  list.set_int("q_num_heads", o.q_heads).set_int("kv_num_heads", o.kv_heads);
  // Defaults are sometimes left out; which ones follows from the seed.
  const bool explicit_defaults = o.seed % 2 == 0;
  if (explicit_defaults || !o.gated || !o.delta) list.set_text("update_rule", rule_of(o));
  if (explicit_defaults || o.scale != 0) list.set_float("scale", o.scale);
  if (explicit_defaults) list.set_int("chunk_size", static_cast<int64_t>(o.seed % 100));
  const auto fold = [&](bool set, const char* plain, const char* prefixed) {
    if (set) list.set_int(o.prefixed ? prefixed : plain, o.seed % 3 == 0 ? -7 : 1);
  };
  fold(o.fold_beta, "cuda_fuse_beta_sigmoid", "com.microsoft.cuda_fuse_beta_sigmoid");
  fold(o.fold_decay, "cuda_fuse_decay_softplus", "com.microsoft.cuda_fuse_decay_softplus");
  // Without the fold of the decay this one is ignored.
  fold(o.fold_exp || (!o.fold_decay && o.seed % 5 == 0), "cuda_fuse_neg_exp",
       "com.microsoft.cuda_fuse_neg_exp");
  return list;
}

test::Arguments LinearCase::inputs() const {
  test::Arguments list;
  for (uint32_t slot = 0; slot < kInputs; ++slot) {
    if (!in[slot].bound()) continue;
    list.add(slot, describe_memory ? test::describe(in[slot]) : test::describe(in[slot].view()));
  }
  return list;
}

test::Arguments LinearCase::outputs() const {
  test::Arguments list;
  for (uint32_t slot = 0; slot < kOutputs; ++slot) {
    const test::Tensor& tensor = target(slot);
    if (slot == kPresentState && !outline.present) continue;
    list.add(slot, describe_memory ? test::describe(tensor) : test::describe(tensor.view()));
  }
  return list;
}

std::vector<attn_alias> LinearCase::aliases() const {
  if (!outline.in_place) return {};
  return {{kPastState, kPresentState}};
}

attn_prepare_desc LinearCase::wide_bounds() const {
  attn_prepare_desc desc = ATTN_PREPARE_DESC_INIT;
  desc.max_batch = outline.batch + 2;
  desc.max_query_length = outline.tokens + 3;
  return desc;
}

void LinearCase::restore() {
  for (test::Tensor& tensor : in) tensor.buffer().restore();
  for (test::Tensor& tensor : out) tensor.buffer().restore();
}

void LinearCase::renew() {
  for (test::Tensor& tensor : in) tensor.buffer().snapshot();
  for (test::Tensor& tensor : out) tensor.buffer().snapshot();
  expected = reference::run(problem);
}

std::vector<const test::Buffer*> LinearCase::results() const {
  std::vector<const test::Buffer*> buffers;
  for (uint32_t slot = 0; slot < kOutputs; ++slot) buffers.push_back(&target(slot).buffer());
  return buffers;
}

LinearCase draw_linear_case(uint64_t seed) {
  test::Random random(test::derive_seed(seed, 11));
  return build_linear_case(draw_linear_outline(seed), random);
}

}  // namespace attn::matrix
