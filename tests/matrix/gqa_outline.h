// The sizes, lengths and options of one random GroupQueryAttention problem, before any memory.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "reference/group_query_attention.h"
#include "support/random.h"

namespace attn::matrix {

using test::Random;
using test::Type;

enum class Step : uint8_t {
  kPrompt,       // total_sequence_length == S: rows may be right-padded
  kDecode,       // S = 1
  kChunk,        // S > 1 with a past
  kSharedCache,  // N = 0
  kFreeKeys,     // N is neither S nor 0 (no rotary)
  kNothing,      // B = 0 or S = 0
};

// Which rule a problem breaks on purpose; the library must refuse it and touch nothing.
enum class Breach : uint8_t {
  kNone,
  kNegativeLength,
  kHugeLength,     // INT32_MAX
  kBeyondBound,    // above total_sequence_length
  kBeyondPresent,  // above a present buffer
  kBeyondPast,     // past above a past buffer
  kShorterThanNew,
  kPosition,
};

// What a draw may be; zero-initialised means everything.
struct DrawOptions {
  bool decode_only = false;
  bool model_heads_only = false;  // head sizes that models use
  int64_t cost_limit = 0;         // B Hq S T D at most; 0: mostly small, rarely large
};

struct CacheOutline {
  int64_t past_rows = 0;
  reference::PresentCache present;
};

struct GqaOutline {
  uint64_t seed = 0;
  Type type = Type::kFloat32;
  Step step = Step::kPrompt;
  Breach breach = Breach::kNone;
  int64_t batch = 1, rows = 1, new_rows = 1;
  int64_t heads = 1, kv_heads = 1, size = 64;
  std::vector<int64_t> totals;  // 0: an empty slot
  int64_t bound = 1;            // total_sequence_length
  bool empty_slots = false;
  bool packed = false;
  bool past = false;
  CacheOutline key, value;

  bool rotary = false, interleaved = false, positions = false, ignored_rotary = false;
  int64_t rotary_width = 0;
  Type table_type = Type::kFloat32;
  bool norm = false;
  double epsilon = 1e-6;
  bool causal = true;
  int64_t window = -1;
  double softcap = 0, scale = 0;
  bool bias = false, bias_batch = false, bias_head = false, bias_row = false;  // own extents
  int64_t bias_extra = 0;                                                      // columns too many
  bool sink = false;
  int64_t smooth = -1;
  int64_t qk_output = 0;
  bool log_sum_exp = false;
  bool strided = false;      // some tensors are views
  bool inner_steps = false;  // innermost strides may differ from 1
  double spread = 1;         // standard deviation of the scores

  bool first_prompt() const { return bound == rows && new_rows == rows; }
  int64_t longest() const;
  int64_t past_of(int64_t b) const;
  int64_t start_of(int64_t b) const;  // position of query row 0
};

// Draws everything above; equal seeds and options draw equal outlines.
GqaOutline draw_outline(uint64_t seed, const DrawOptions& options, Random& random);

// Names of the features that the outline has, for counting; and one line that says it all.
std::set<std::string> features_of(const GqaOutline& outline);
std::string text_of(const GqaOutline& outline);

}  // namespace attn::matrix
