// What CUDA devices do not take, asked of the claim gate: the reason stands in words, and the same
// call in a form that they take is served.
#include <gtest/gtest.h>

#include <string>

#include "loading/fakes.h"

namespace attn::test {
namespace {

constexpr attn_dtype kSingle = {ATTN_DTYPE_FLOAT, 32, 1}, kDouble = {ATTN_DTYPE_FLOAT, 64, 1};
constexpr attn_dtype kLong = {ATTN_DTYPE_INT, 64, 1};

attn_tensor shaped(attn_dtype type, const std::vector<int64_t>& shape, bool on_host = false) {
  attn_tensor tensor = ATTN_TENSOR_INIT;
  tensor.device_type = on_host ? ATTN_DEVICE_CPU : ATTN_DEVICE_CUDA;
  tensor.dtype = type;
  tensor.ndim = static_cast<int32_t>(shape.size());
  for (size_t axis = 0; axis < shape.size(); ++axis) tensor.shape[axis] = shape[axis];
  return tensor;
}

class CudaRefusals : public testing::Test {
 protected:
  CudaRefusals() {
    reset_fakes();
    const Outcome created = create_cuda_context(context_, CudaOptions{});
    EXPECT_TRUE(created.ok()) << created.message;
  }

  // Empty where the call is served, else the reason.
  std::string ask(const char* domain, const char* type, int32_t version, const Attributes& given,
                  const Arguments& inputs, const char* engine = nullptr) {
    Handle<attn_op> op;
    const Outcome created = create_op(op, context_.get(), domain, type, version, given);
    if (!created.ok()) return "op_create: " + created.message;
    attn_query_desc desc = ATTN_QUERY_DESC_INIT;
    desc.inputs = inputs.data();
    desc.input_count = inputs.size();
    desc.engine = engine;
    attn_support support = ATTN_SUPPORT_INIT;
    const Outcome asked = outcome_of(
        [&](attn_error* error) { return attn_op_query(op.get(), &desc, &support, error); });
    if (!asked.ok()) return "op_query: " + asked.message;
    return support.supported != 0 ? "" : support.reason;
  }

  static Arguments attention(attn_dtype type) {
    Arguments inputs;
    inputs.add(0, shaped(type, {1, 4, 8, 64}));
    inputs.add(1, shaped(type, {1, 2, 16, 64}));
    inputs.add(2, shaped(type, {1, 2, 16, 64}));
    return inputs;
  }

 private:
  Handle<attn_context> context_;
};

TEST_F(CudaRefusals, AttentionInFloat64) {
  EXPECT_EQ(ask("ai.onnx", "Attention", 24, {}, attention(kSingle)), "");
  EXPECT_NE(ask("ai.onnx", "Attention", 24, {}, attention(kDouble)).find("float64"),
            std::string::npos);
}

TEST_F(CudaRefusals, NoneOfValidLengthsInHostMemory) {
  Arguments inputs = attention(kSingle);
  inputs.add(6, shaped(kLong, {1}));
  EXPECT_EQ(ask("ai.onnx", "Attention", 24, {}, inputs), "");
  inputs = attention(kSingle);
  inputs.add(6, shaped(kLong, {1}, true));
  EXPECT_EQ(ask("ai.onnx", "Attention", 24, {}, inputs), "");
}

}  // namespace
}  // namespace attn::test
