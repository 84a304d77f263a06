// Words for outlines: what a failure prints and what the counts are called.
#include <sstream>

#include "matrix/gqa_outline.h"

namespace attn::matrix {
namespace {

const char* step_name(Step step) {
  switch (step) {
    case Step::kPrompt:
      return "prompt";
    case Step::kDecode:
      return "decode";
    case Step::kChunk:
      return "chunk";
    case Step::kSharedCache:
      return "shared-cache";
    case Step::kFreeKeys:
      return "free-keys";
    case Step::kNothing:
      return "nothing";
  }
  return "?";
}

const char* breach_name(Breach breach) {
  switch (breach) {
    case Breach::kNone:
      return "none";
    case Breach::kNegativeLength:
      return "negative length";
    case Breach::kHugeLength:
      return "huge length";
    case Breach::kBeyondBound:
      return "beyond the bound";
    case Breach::kBeyondPresent:
      return "beyond present";
    case Breach::kBeyondPast:
      return "beyond past";
    case Breach::kShorterThanNew:
      return "shorter than the new keys";
    case Breach::kPosition:
      return "position outside the table";
  }
  return "?";
}

std::string cache_name(const GqaOutline& o, const CacheOutline& cache) {
  if (!cache.present.bound) return o.past ? "past-only" : "none";
  if (!o.past) return "present-only";
  return cache.present.in_place ? "in-place" : "separate";
}

std::string cache_text(const GqaOutline& o, const CacheOutline& cache) {
  std::ostringstream text;
  text << cache_name(o, cache);
  if (o.past) text << " past " << cache.past_rows;
  if (cache.present.bound) text << " present " << cache.present.rows;
  return text.str();
}

}  // namespace

std::set<std::string> features_of(const GqaOutline& o) {
  std::set<std::string> features = {std::string("step ") + step_name(o.step),
                                    "type " + name_of(o.type), "key " + cache_name(o, o.key),
                                    "value " + cache_name(o, o.value)};
  const auto add = [&](bool has, const char* name) {
    if (has) features.insert(name);
  };
  bool padded = false, ragged = false;
  for (int64_t total : o.totals) {
    padded = padded || (o.first_prompt() && total > 0 && total < o.rows);
    ragged = ragged || total != o.totals[0];
  }
  add(padded, "padded prompt");
  add(ragged, "ragged");
  add(o.step == Step::kChunk && o.batch > 1, "chunk with batch");
  add(o.key.present.in_place != o.value.present.in_place, "one cache in place");
  add(o.packed, "packed");
  add(o.empty_slots, "empty slots");
  add(o.bound > o.longest() && !o.first_prompt(), "bound above totals");
  add(o.rotary && o.interleaved, "rotary interleaved");
  add(o.rotary && !o.interleaved, "rotary half-split");
  add(o.rotary && o.rotary_width < o.size, "rotary partial");
  add(o.rotary && o.positions, "positions");
  add(o.rotary && o.table_type != o.type, "float32 table");
  add(o.norm, "norm");
  add(!o.causal, "bidirectional");
  add(o.window > 0, "window");
  add(o.softcap > 0, "softcap");
  add(o.scale > 0, "scale");
  add(o.scale < 0, "negative scale");
  add(o.bias, "bias");
  add(o.bias && !(o.bias_batch && o.bias_head && o.bias_row), "bias broadcast");
  add(o.bias && o.bias_extra > 0, "bias wider");
  add(o.sink, "sink");
  add(o.smooth == 1, "smooth");
  add(o.qk_output == 1, "scores 1");
  add(o.qk_output == 2, "scores 2");
  add(o.log_sum_exp, "log-sum-exp");
  add(o.strided, "strided");
  add(o.inner_steps, "inner steps");
  add(o.breach != Breach::kNone, "breach");
  add(o.longest() > 1000, "over 1000 keys");
  add(o.spread > 5, "scores to 20");
  return features;
}

std::string text_of(const GqaOutline& o) {
  std::ostringstream text;
  text << step_name(o.step) << " " << name_of(o.type) << " B" << o.batch << " S" << o.rows << " N"
       << o.new_rows << " heads " << o.heads << "/" << o.kv_heads << " D" << o.size << " totals [";
  for (size_t b = 0; b < o.totals.size(); ++b) text << (b ? " " : "") << o.totals[b];
  text << "] bound " << o.bound << "; key " << cache_text(o, o.key) << ", value "
       << cache_text(o, o.value);
  if (o.packed) text << "; packed";
  if (o.empty_slots) text << "; empty slots";
  if (o.rotary) {
    text << "; rotary " << o.rotary_width << (o.interleaved ? " interleaved" : " half-split")
         << ", table " << name_of(o.table_type) << (o.positions ? ", positions" : "");
  }
  if (o.norm) text << "; norm eps " << o.epsilon;
  if (!o.causal) text << "; bidirectional";
  if (o.window > 0) text << "; window " << o.window;
  if (o.softcap > 0) text << "; softcap " << o.softcap;
  if (o.scale != 0) text << "; scale " << o.scale;
  if (o.bias) {
    text << "; bias (" << (o.bias_batch ? "B" : "1") << "," << (o.bias_head ? "H" : "1") << ","
         << (o.bias_row ? "S" : "1") << ",+" << o.bias_extra << ")";
  }
  if (o.sink) text << "; sink";
  if (o.smooth != -1) text << "; smooth " << o.smooth;
  if (o.qk_output) text << "; qk_output " << o.qk_output;
  if (o.log_sum_exp) text << "; log-sum-exp";
  if (o.strided) text << "; strided" << (o.inner_steps ? " with inner steps" : "");
  if (o.breach != Breach::kNone) text << "; breach: " << breach_name(o.breach);
  text << "; spread " << o.spread;
  return text.str();
}

}  // namespace attn::matrix
