// The steps of building a case; they share the outline, the generator and the case.
#pragma once

#include <cstdint>
#include <vector>

#include "matrix/gqa_case.h"

namespace attn::matrix {

class Builder {
 public:
  Builder(GqaCase& c, Random& random) : c_(c), o_(c.outline), random_(random) {
    c.loose.assign(static_cast<size_t>(o_.batch * o_.kv_heads), false);
  }

  // gqa_build.cc: tensors and their ordinary values.
  void draw_tokens();
  void draw_caches();
  void draw_outliers();
  void draw_lengths();
  void draw_rotary();
  void draw_small_inputs();
  void draw_outputs();
  void fill_problem();
  // gqa_poison.cc: what must not be felt, what must, and what must be refused.
  void draw_bias();
  void poison_unused();
  void poison_keys_and_values();
  void break_rule();

 private:
  test::Tensor make(Type type, std::vector<int64_t> shape, std::vector<bool> may_broadcast = {},
                    bool output = false);
  void draw_positions(int64_t table_rows);
  void keep_one_visible(double sentinel);
  // Calls each(b, row) for all tokens of a view whose first axes are batch and row.
  template <class Each>
  void for_each_token(const test::View& view, Each each) {
    for (int64_t b = 0; b < view.dim(0); ++b) {
      for (int64_t row = 0; row < view.dim(1); ++row) each(b, row);
    }
  }
  // The keys [first, last) that query row i of batch row b may see, the bias aside.
  void visible_range(int64_t b, int64_t i, int64_t* first, int64_t* last) const;
  // Whether some query row of batch row b sees key j, the bias aside.
  bool seen(int64_t b, int64_t j) const;
  // Sets one channel of key (or value) row j, wherever it comes from; false if it shares memory
  // with other rows.
  bool set_key(bool value, int64_t b, int64_t head, int64_t j, int64_t channel, double to);

  GqaCase& c_;
  const GqaOutline& o_;
  Random& random_;
  double query_sigma_ = 1;
};

}  // namespace attn::matrix
