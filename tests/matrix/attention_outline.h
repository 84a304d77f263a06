// The sizes and options of one random problem of ai.onnx Attention, before any memory.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "support/random.h"
#include "support/scalar.h"

namespace attn::matrix {

using test::Random;
using test::Type;

// Where a call's keys come from.
enum class KeyForm : uint8_t {
  kPlain,     // K and V are all there is
  kNonpad,    // K and V with a valid length a batch row
  kDense,     // past ++ new
  kCapacity,  // present longer than past and new rows
  kFrozen,    // present no longer than past: the mask says the length
  kMarked,    // a capacity whose length the mask says (length_from_mask)
};

// Which rule a problem breaks on purpose; the library must refuse it and touch nothing.
enum class AttentionBreach : uint8_t { kNone, kNegativeLength, kLengthBeyond, kShortMask };

// What a draw may be; zero-initialised means everything.
struct AttentionDraw {
  bool decode_only = false;  // one query row
};

struct AttentionOutline {
  uint64_t seed = 0;
  Type type = Type::kFloat32;
  KeyForm form = KeyForm::kPlain;
  AttentionBreach breach = AttentionBreach::kNone;
  int32_t version = 24;
  int64_t batch = 1, rows = 1, new_rows = 1;
  int64_t heads = 1, kv_heads = 1, size = 64, v_size = 64;
  int query_rank = 4, key_rank = 4, value_rank = 4, past_rank = 4;
  int64_t past_rows = 0;     // of the past tensors
  int64_t key_capacity = 0;  // R of each present buffer
  int64_t value_capacity = 0;
  bool present_key = false, present_value = false;
  bool aliased_key = false, aliased_value = false;
  std::vector<int64_t> lengths;  // kNonpad, kFrozen, kMarked: the keys of each batch row

  bool mask = false;
  Type mask_type = Type::kBool;
  std::vector<int64_t> mask_shape;
  bool causal = false;
  int64_t left_window = -1, right_window = -1;
  bool has_scale = false;
  double scale = 1;
  double softcap = 0;
  int64_t softmax_precision = 0;  // 0: not given
  bool scores = false;
  int64_t score_mode = 0;
  bool log_sum_exp = false;
  bool strided = false;      // some tensors are views
  bool inner_steps = false;  // innermost strides may differ from 1
  double spread = 1;         // standard deviation of the scores

  bool has_past() const { return form >= KeyForm::kDense; }
  bool derived() const { return form >= KeyForm::kFrozen; }
  // Keys that scores and masks are as wide as.
  int64_t columns() const;
  // Keys of batch row b, its past rows, the position of its query row 0.
  int64_t total_of(int64_t b) const;
  int64_t past_of(int64_t b) const;
  int64_t start_of(int64_t b) const;
};

// Draws everything above; equal seeds and options draw equal outlines.
AttentionOutline draw_attention_outline(uint64_t seed, const AttentionDraw& draw, Random& random);

// Names of the features that the outline has, for counting; and one line that says it all.
std::set<std::string> features_of(const AttentionOutline& outline);
std::string text_of(const AttentionOutline& outline);

}  // namespace attn::matrix
