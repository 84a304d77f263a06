// A random problem of TensorScatter in memory.
#pragma once

#include <string>
#include <vector>

#include "matrix/case.h"
#include "matrix/matrix.h"
#include "reference/tensor_scatter.h"
#include "support/tensor.h"

namespace attn::matrix {

class ScatterCase final : public Case {
 public:
  explicit ScatterCase(uint64_t seed);

  OperatorName name() const override { return {"ai.onnx", "TensorScatter", 24}; }
  uint64_t seed() const override { return seed_; }
  Type type() const override { return carrier_; }
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
  std::vector<const test::Buffer*> results() const override { return {&present().buffer()}; }

  // Every tensor of the call, absent ones included: a device keeps copies of them.
  std::vector<test::Tensor*> all() { return {&past_, &update_, &indices_, &present_}; }
  const std::vector<bool>& bad_batch_rows() const { return bad_; }

 private:
  void draw_shape(test::Random& random);
  void draw_tensors(test::Random& random);
  void draw_indices(test::Random& random);
  // Bits of the expected element; in place they come from what the cache held before the run.
  void take_expected();
  attn_tensor describe(const test::Tensor& tensor) const;
  const test::Tensor& present() const { return in_place_ ? past_ : present_; }
  std::vector<const test::Tensor*> all() const { return {&past_, &update_, &indices_, &present_}; }

  uint64_t seed_;
  attn_dtype dtype_{};
  std::string type_name_;
  Type carrier_{};  // a type of the tests with elements of the same size
  std::vector<int64_t> shape_;
  size_t axis_ = 1;
  int64_t new_rows_ = 0;
  bool negative_axis_ = false, circular_ = false, in_place_ = false;
  std::vector<bool> bad_;  // batch rows whose index lies outside the cache
  test::Tensor past_, update_, indices_, present_;
  reference::TensorScatter problem_;
  std::vector<uint64_t> expected_;
  std::vector<bool> fresh_bytes_;  // of the cache in place: bytes of new rows
};

MatrixOptions scatter_matrix_options();

}  // namespace attn::matrix
