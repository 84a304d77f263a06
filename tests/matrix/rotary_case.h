// A random problem of RotaryEmbedding in memory.
#pragma once

#include <string>
#include <vector>

#include "matrix/case.h"
#include "matrix/matrix.h"
#include "reference/rotary_embedding.h"
#include "support/tensor.h"

namespace attn::matrix {

class RotaryCase final : public Case {
 public:
  explicit RotaryCase(uint64_t seed);

  OperatorName name() const override { return {"ai.onnx", "RotaryEmbedding", 23}; }
  uint64_t seed() const override { return seed_; }
  Type type() const override { return type_; }
  std::set<std::string> features() const override;
  std::string text() const override;
  test::Attributes attributes() const override;
  test::Arguments inputs() const override;
  test::Arguments outputs() const override;
  std::vector<attn_alias> aliases() const override;
  attn_prepare_desc wide_bounds() const override;
  void restore() override;
  uint32_t faults() const override;
  std::string check(CheckNumbers* numbers) const override;
  std::string untouched() const override;
  bool fixed_whatever_the_tiles() const override { return true; }
  std::vector<const test::Buffer*> results() const override { return {&y().buffer()}; }

  // Every tensor of the call, absent ones included: a device keeps copies of them.
  std::vector<test::Tensor*> all() { return {&x_, &cos_, &sin_, &positions_, &y_}; }
  const std::vector<bool>& bad_batch_rows() const { return bad_; }

 private:
  void draw_sizes(test::Random& random);
  void draw_tensors(test::Random& random);
  void draw_positions(test::Random& random);
  void poison(test::Random& random);
  const test::Tensor& y() const { return in_place_ ? x_ : y_; }
  std::vector<const test::Tensor*> all() const { return {&x_, &cos_, &sin_, &positions_, &y_}; }

  uint64_t seed_;
  Type type_{};
  int64_t batch_ = 0, heads_ = 0, rows_ = 0, size_ = 0;
  int64_t width_ = 0;       // rotated channels
  int64_t table_rows_ = 0;  // with positions
  bool whole_ = false;      // the attribute says 0: the whole head
  bool heads_apart_ = false, interleaved_ = false, in_place_ = false;
  std::vector<bool> bad_;  // batch rows with a position outside the tables
  test::Tensor x_, cos_, sin_, positions_, y_;
  reference::RotaryEmbedding problem_;
  std::vector<double> expected_;
};

MatrixOptions rotary_matrix_options();

}  // namespace attn::matrix
