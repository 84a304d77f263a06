// What a tensor's description may say: every rule that needs no operator.
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "api/tensor_intake.h"
#include "api_fixture.h"
#include "core/error.h"

namespace attn::test {
namespace {

using api::ByteRange;
using api::Intake;

class ApiTensorTest : public ::testing::Test {
 protected:
  Tensor take(Intake intake = Intake::kExecute, bool is_output = false) {
    Tensor tensor;
    range = ByteRange();
    api::take_tensor(&source, "x", intake, is_output, device, tensor, range);
    return tensor;
  }

  void refuse(const std::string& words, Intake intake = Intake::kExecute, bool is_output = false) {
    try {
      take(intake, is_output);
      ADD_FAILURE() << "accepted; expected: " << words;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), ATTN_INVALID_ARGUMENT);
      EXPECT_NE(error.message().find(words), std::string::npos) << error.message();
      EXPECT_EQ(error.message().find("x"), 0u) << error.message();
    }
  }

  alignas(64) float memory[64] = {};
  attn_tensor source = api_tensor(kApiFloat, {2, 3, 4}, memory);
  api::DeviceIdentity device;
  ByteRange range;
};

TEST_F(ApiTensorTest, TakesWhatItSays) {
  source.byte_offset = 16;
  const Tensor tensor = take();
  EXPECT_TRUE(tensor.present);
  EXPECT_EQ(tensor.type, kFloat32);
  EXPECT_EQ(tensor.placement, Placement::kHost);
  EXPECT_EQ(tensor.rank, 3);
  EXPECT_EQ(tensor.elements(), 24);
  EXPECT_TRUE(tensor.contiguous());
  EXPECT_EQ(tensor.data, memory + 4);
  EXPECT_EQ(range.begin, reinterpret_cast<uintptr_t>(memory + 4));
  EXPECT_EQ(range.end, reinterpret_cast<uintptr_t>(memory + 28));
}

TEST_F(ApiTensorTest, RankTypeAndLanes) {
  source.ndim = 9;
  refuse("x: ndim is 9; 0 to 8");
  source.ndim = -1;
  refuse("x: ndim is -1");
  source.ndim = 0;
  EXPECT_EQ(take().elements(), 1);
  source.dtype.lanes = 4;
  refuse("x: dtype.lanes is 4");
  source.dtype.lanes = 0;
  refuse("x: dtype.lanes is 0");
}

TEST_F(ApiTensorTest, UnknownSizesOnlyInQueries) {
  source.shape[1] = -1;
  refuse("x: shape[1] is -1; 0 and up are accepted");
  refuse("x: shape[1] is -1", Intake::kPlan);
  EXPECT_EQ(take(Intake::kShapes).elements(), -1);
  source.shape[1] = -2;
  refuse("x: shape[1] is -2; 0 and up, and -1 for any", Intake::kShapes);
}

TEST_F(ApiTensorTest, CountsThatOverflow) {
  source.shape[0] = source.shape[1] = int64_t{1} << 32;
  refuse(
      "x: the shape (4294967296, 4294967296, 4) has more bytes than 64 bits count; shape[0] * "
      "shape[1] is too large for elements of 4 bytes");
  source.shape[2] = 0;
  refuse("x: the shape", Intake::kPlan);  // a zero does not hide the product of the rest
  source.shape[1] = 1;
  EXPECT_EQ(take().elements(), 0);
}

TEST_F(ApiTensorTest, StridesThatNeverMatterAreReplaced) {
  source.shape[1] = 1;
  source.strides[1] = std::numeric_limits<int64_t>::min();
  const Tensor tensor = take();
  EXPECT_EQ(tensor.strides[1], 4);
  source.shape[0] = 0;
  for (int64_t& stride : source.strides) stride = std::numeric_limits<int64_t>::max();
  EXPECT_TRUE(take().contiguous());
  EXPECT_EQ(range.begin, range.end);
}

TEST_F(ApiTensorTest, ZeroStrides) {
  source.strides[0] = 0;
  EXPECT_EQ(take().strides[0], 0);
  refuse("x: stride 0 on axis 0 of size 2", Intake::kExecute, true);
  source.shape[0] = 1;
  take(Intake::kExecute, true);
}

// Two indices of an output may not mean one element, with data or without.
TEST_F(ApiTensorTest, OutputsWhoseElementsShareAPlace) {
  for (const int64_t row : {int64_t{1}, int64_t{3}, int64_t{-2}}) {
    source.strides[1] = row;
    take();
    const std::string words =
        "x: with the strides (12, " + std::to_string(row) +
        ", 1) elements of the shape (2, 3, 4) share a place; outputs need an element of their own "
        "for each index";
    for (const Intake intake : {Intake::kShapes, Intake::kPlan, Intake::kExecute}) {
      refuse(words, intake, true);
    }
    source.data = nullptr;
    refuse(words, Intake::kShapes, true);
    source.data = memory + 16;
  }
  source.strides[1] = -4;
  take(Intake::kExecute, true);
  source.strides[1] = 2;  // 0, 2, 4 and 3, 5, 7
  source.strides[2] = 3;
  source.shape[2] = 2;
  take(Intake::kExecute, true);
  source.shape[2] = 0;
  source.strides[1] = 1;
  take(Intake::kExecute, true);
}

// A description that was zeroed and got no strides.
TEST_F(ApiTensorTest, UnstatedStrides) {
  for (int64_t& stride : source.strides) stride = 0;
  const std::string words =
      "x: all strides are 0, but the shape (2, 3, 4) has more than one element; state them "
      "(row-major is 12, 4, 1)";
  const std::string or_else = ", or set ATTN_TENSOR_BROADCAST if one element is meant for all";
  refuse(words + or_else);
  refuse(words + or_else, Intake::kPlan);
  refuse(words + or_else, Intake::kShapes);  // what the gate takes must run
  refuse(words, Intake::kExecute, true);
  source.data = nullptr;
  EXPECT_TRUE(take(Intake::kShapes).contiguous());
  EXPECT_TRUE(take(Intake::kPlan).contiguous());
  EXPECT_TRUE(take(Intake::kPlan, true).contiguous());
}

TEST_F(ApiTensorTest, StridesThatAreAllZeroOnPurpose) {
  for (int64_t& stride : source.strides) stride = 0;
  source.flags = ATTN_TENSOR_BROADCAST;
  for (const Intake intake : {Intake::kShapes, Intake::kPlan, Intake::kExecute}) {
    EXPECT_EQ(take(intake).strides[2], 0);
  }
  EXPECT_EQ(range.end - range.begin, sizeof(float));
  refuse("x: stride 0 on axis 2 of size 4", Intake::kExecute, true);
  source.data = nullptr;
  EXPECT_EQ(take(Intake::kPlan).strides[2], 0);
}

// One element needs no stride.
TEST_F(ApiTensorTest, StridesOfOneElement) {
  for (int64_t& stride : source.strides) stride = 0;
  source.shape[0] = source.shape[1] = source.shape[2] = 1;
  EXPECT_TRUE(take().contiguous());
  EXPECT_TRUE(take(Intake::kExecute, true).contiguous());
  source.shape[1] = 0;
  EXPECT_TRUE(take().contiguous());
  source.ndim = 0;
  EXPECT_EQ(take().elements(), 1);
}

TEST_F(ApiTensorTest, NegativeStrides) {
  source.strides[0] = -12;
  source.byte_offset = 12 * 4;
  const Tensor tensor = take();
  EXPECT_EQ(tensor.data, memory + 12);
  EXPECT_EQ(range.begin, reinterpret_cast<uintptr_t>(memory));
  EXPECT_EQ(range.end, reinterpret_cast<uintptr_t>(memory + 24));
  source.data_bytes = 24 * 4;
  take();
  source.byte_offset = 8 * 4;
  refuse("x: the strides reach bytes -48 to 48 from byte_offset 32; data_bytes is 96");
}

TEST_F(ApiTensorTest, DataBytes) {
  source.data_bytes = 24 * 4;
  take();
  source.data_bytes = 24 * 4 - 1;
  refuse("data_bytes is 95");
  source.data_bytes = 24 * 4;
  source.byte_offset = 4;
  refuse("from byte_offset 4; data_bytes is 96");
  source.byte_offset = std::numeric_limits<uint64_t>::max() - 3;
  refuse("data_bytes is 96");
  source.byte_offset = 0;
  source.strides[0] = 13;
  refuse("reach bytes 0 to 100");
}

TEST_F(ApiTensorTest, ArithmeticThatOverflows) {
  source.strides[0] = std::numeric_limits<int64_t>::max();
  refuse("x: the strides reach further than 64 bits count");
  source.shape[0] = 3;
  refuse("x: the strides reach further than 64 bits count");
  source.strides[0] = std::numeric_limits<int64_t>::min();
  refuse("x: the strides reach further than 64 bits count");
  source.strides[0] = std::numeric_limits<int64_t>::max() / 16;
  source.strides[1] = std::numeric_limits<int64_t>::max() / 16;
  refuse("x: ");
  source = api_tensor(kApiFloat, {2, 3, 4}, memory);
  source.byte_offset = std::numeric_limits<uint64_t>::max() - 63;
  refuse("x: data, byte_offset and strides reach beyond the address space");
  source.byte_offset = 0;
  source.strides[0] = -(int64_t{1} << 60);
  refuse("x: data, byte_offset and strides reach beyond the address space");
}

TEST_F(ApiTensorTest, Alignment) {
  source.byte_offset = 2;
  refuse("x: the data is not aligned to its element size of 4 bytes");
  source.shape[0] = 0;
  take();
  source = api_tensor({ATTN_DTYPE_FLOAT, 16, 1}, {2}, memory);
  source.byte_offset = 2;
  take();
}

TEST_F(ApiTensorTest, NullData) {
  source.data = nullptr;
  refuse("x: data is null, but the shape (2, 3, 4) has elements");
  EXPECT_EQ(take(Intake::kPlan).data, nullptr);
  EXPECT_EQ(range.begin, range.end);
  source.shape[1] = 0;
  take();
}

TEST_F(ApiTensorTest, ReadOnlyOutputs) {
  source.flags = ATTN_TENSOR_READ_ONLY;
  take();
  refuse("x: the tensor is read-only", Intake::kExecute, true);
}

TEST_F(ApiTensorTest, DevicesOfACpuContext) {
  source.device_type = ATTN_DEVICE_CUDA_HOST;
  source.device_id = 3;
  EXPECT_EQ(take().placement, Placement::kHost);
  source.device_type = ATTN_DEVICE_CUDA_MANAGED;
  EXPECT_EQ(take().placement, Placement::kHost);
  source.device_type = ATTN_DEVICE_CUDA;
  refuse("x: lies in CUDA device memory, the context is on the CPU");
  source.device_type = ATTN_DEVICE_CPU;
  refuse("x: device id 3 of host memory");
  source.device_id = 0;
  source.device_type = 0;
  refuse("x: device type 0 is unknown");
  source.data = nullptr;  // a description of shapes alone need not say
  EXPECT_EQ(take(Intake::kPlan).placement, Placement::kHost);
}

TEST_F(ApiTensorTest, DevicesOfACudaContext) {
  device = {ATTN_DEVICE_CUDA, 1};
  source.device_type = ATTN_DEVICE_CUDA;
  refuse("x: lies on CUDA device 0, the context is on device 1");
  source.device_id = 1;
  EXPECT_EQ(take().placement, Placement::kDevice);
  source.device_type = ATTN_DEVICE_CUDA_MANAGED;
  EXPECT_EQ(take().placement, Placement::kDevice);
  source.device_type = ATTN_DEVICE_CUDA_HOST;
  EXPECT_EQ(take().placement, Placement::kHost);
}

TEST_F(ApiTensorTest, NewerAndBrokenStructs) {
  source.struct_size = 0;
  refuse("x.struct_size is 0");
  struct Newer {
    attn_tensor tensor;
    uint64_t more;
  } newer = {source, 0};
  newer.tensor.struct_size = sizeof newer;
  Tensor tensor;
  api::take_tensor(&newer.tensor, "x", Intake::kExecute, false, device, tensor, range);
  newer.more = 1;
  try {
    api::take_tensor(&newer.tensor, "x", Intake::kExecute, false, device, tensor, range);
    FAIL() << "accepted a field that is unknown here";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), ATTN_VERSION);
  }
  try {
    api::take_tensor(nullptr, "x", Intake::kExecute, false, device, tensor, range);
    FAIL() << "accepted null";
  } catch (const Error& error) {
    EXPECT_EQ(error.message(), "x is null");
  }
}

}  // namespace
}  // namespace attn::test
