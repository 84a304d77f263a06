// A random problem of VarlenAttention (a padded batch) or PackedVarlenAttention (packed tokens) in
// memory.
#pragma once

#include <string>
#include <vector>

#include "matrix/case.h"
#include "matrix/matrix.h"
#include "support/random.h"
#include "support/tensor.h"

namespace attn::matrix {

class VarlenCase final : public Case {
 public:
  explicit VarlenCase(uint64_t seed);

  OperatorName name() const override {
    return {"pkg.nxrt", packed_ ? "PackedVarlenAttention" : "VarlenAttention", 1};
  }
  uint64_t seed() const override { return seed_; }
  Type type() const override { return type_; }
  std::set<std::string> features() const override;
  std::string text() const override;
  test::Attributes attributes() const override;
  test::Arguments inputs() const override;
  test::Arguments outputs() const override;
  std::vector<attn_alias> aliases() const override { return {}; }
  attn_prepare_desc wide_bounds() const override;
  void restore() override;
  uint32_t faults() const override { return faults_; }
  std::string check(CheckNumbers* numbers) const override;
  std::string untouched() const override;
  bool fixed_whatever_the_tiles() const override { return true; }
  std::vector<const test::Buffer*> results() const override {
    return {&output_.buffer(), &log_sum_exp_.buffer()};
  }

  // On a device, which finds bad lengths as it runs, check() expects zeros of what they spoil.
  // Head sizes that few kernels serve.
  bool has_model_sizes() const { return size_ == v_size_ && (size_ == 64 || size_ == 128); }
  double log_sum_exp_room = 1;  // what its bound is multiplied by
  // Every tensor of the call, absent ones included: a device keeps copies of them. The lengths
  // stand behind query, key and value.
  std::vector<test::Tensor*> all() {
    return {&query_, &key_, &value_, &query_ends_, &key_ends_, &output_, &log_sum_exp_};
  }

 private:
  struct Sequence {
    int64_t queries = 0, keys = 0;
    int64_t first_query = 0, first_key = 0;  // packed: among the tokens
  };
  // What the reference says of one query row of one head.
  struct Expected {
    std::vector<double> output;
    double log_sum_exp = 0;
    double output_size = 0, weighing_size = 0;
  };

  void draw_sizes(test::Random& random);
  void draw_tensors(test::Random& random);
  void break_lengths(test::Random& random);
  void hide(test::Random& random);
  void solve();
  Expected attend(const Sequence& sequence, int64_t batch, int64_t head, int64_t row) const;
  // A tensor of the call by (batch, head, row, channel); packed tokens have one batch row.
  test::View by_heads(const test::Tensor& tensor, int64_t heads) const;
  int64_t batch_of(size_t sequence) const { return packed_ ? 0 : static_cast<int64_t>(sequence); }
  int64_t batches() const { return packed_ ? 1 : static_cast<int64_t>(sequences_.size()); }
  size_t row_number(int64_t batch, int64_t head, int64_t row) const {
    return static_cast<size_t>((batch * heads_ + head) * rows_ + row);
  }
  std::vector<const test::Tensor*> all() const {
    return {&query_, &key_, &value_, &query_ends_, &key_ends_, &output_, &log_sum_exp_};
  }

  uint64_t seed_;
  bool packed_ = false;
  Type type_{};
  std::vector<Sequence> sequences_;
  int64_t rows_ = 0, keys_ = 0;  // a sequence's of a padded batch; all tokens of a packed one
  int64_t heads_ = 1, kv_heads_ = 1, size_ = 1, v_size_ = 1;
  bool causal_ = false, own_keys_ = true, joined_ = false;
  int64_t left_window_ = -1, right_window_ = -1;
  int64_t most_queries_ = 0, most_keys_ = 0;  // packed: attributes, 0 where not given
  double scale_ = 0, softcap_ = 0, spread_ = 1;
  uint32_t faults_ = 0;
  int64_t bad_ = -1;  // the batch row with a bad valid length
  // `query_ends_` holds nonpad_kv_seqlen of a padded batch.
  test::Tensor query_, key_, value_, query_ends_, key_ends_, output_, log_sum_exp_;
  std::vector<Expected> expected_;  // by row_number(); of no sequence: zeros, -infinity
};

MatrixOptions varlen_matrix_options();

}  // namespace attn::matrix
