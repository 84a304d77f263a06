// Arguments of GroupQueryAttention for the fuzzer: a call that fits together, then damaged. All
// memory is of exactly the size that the descriptions state, so that a step beyond it is seen.
#pragma once

#include <array>
#include <cstdint>

#include "attn_c.h"
#include "fuzz_input.h"

namespace attn::fuzz {

class Call {
 public:
  explicit Call(Input& input) : input_(input) {
    build();
    for (int damages = input.byte() % 4; damages > 1; --damages) damage();
  }

  const attn_arg* inputs() const { return inputs_.data(); }
  const attn_arg* outputs() const { return outputs_.data(); }
  uint32_t input_count() const { return input_count_; }
  uint32_t output_count() const { return output_count_; }
  const attn_tensor* any_tensor() { return input_.given(tensors_[input_.byte() % count_]); }

 private:
  static constexpr size_t kMaxTensors = 32;

  // A row-major tensor in memory of its own.
  attn_tensor& tensor(attn_dtype type, std::initializer_list<int64_t> shape) {
    attn_tensor& result = tensors_[count_++];
    result = ATTN_TENSOR_INIT;
    result.device_type = ATTN_DEVICE_CPU;
    result.dtype = type;
    for (const int64_t size : shape) result.shape[result.ndim++] = size;
    int64_t elements = 1;
    for (int32_t axis = result.ndim - 1; axis >= 0; --axis) {
      result.strides[axis] = elements;
      elements *= result.shape[axis];
    }
    result.data_bytes = static_cast<uint64_t>(elements) * type.bits / 8;
    if (!shapes_only_) {
      result.data = input_.block(result.data_bytes);
      std::memset(result.data, input_.one_of<uint8_t>({0, 0x3c, 0x3f, 0xff}), result.data_bytes);
    }
    return result;
  }

  void add_input(uint32_t slot, attn_tensor& value) { inputs_[input_count_++] = {slot, 0, &value}; }
  void add_output(uint32_t slot, attn_tensor& value) {
    outputs_[output_count_++] = {slot, 0, &value};
  }

  int32_t* values(attn_tensor& holder, int32_t usual, size_t count) {
    auto* data = static_cast<int32_t*>(holder.data);
    if (data == nullptr) return nullptr;
    for (size_t i = 0; i < count; ++i) {
      data[i] =
          input_.rarely(6) ? input_.one_of<int32_t>({-1, -2, INT32_MIN, 0, 1, 5, 30, 300}) : usual;
    }
    return data;
  }

  void build() {
    const uint8_t options = input_.byte();
    const uint8_t more = input_.byte();
    shapes_only_ = options % 8 == 7;
    const attn_dtype type = input_.one_of<attn_dtype>({{ATTN_DTYPE_FLOAT, 32, 1},
                                                       {ATTN_DTYPE_FLOAT, 16, 1},
                                                       {ATTN_DTYPE_BFLOAT, 16, 1},
                                                       {ATTN_DTYPE_FLOAT, 64, 1}});
    const attn_dtype int32 = {ATTN_DTYPE_INT, 32, 1};
    const int64_t batch = input_.one_of<int64_t>({1, 2, 3, 0});
    const int64_t rows = input_.one_of<int64_t>({1, 1, 4, 17, 0});
    const int64_t heads = input_.one_of<int64_t>({2, 4, 1});
    const int64_t kv_heads = input_.one_of<int64_t>({1, 2});
    const int64_t size = input_.one_of<int64_t>({8, 16, 4, 1, 33, 64});
    const int64_t past = input_.one_of<int64_t>({0, 5, 16, 40});
    const int64_t capacity = past + rows;
    const bool packed = (options & 0x10) != 0;
    const bool in_place = (options & 0x20) != 0;
    const bool has_past = (options & 0x40) != 0;
    const bool has_present = (options & 0x80) != 0;

    if (packed) {
      add_input(0, tensor(type, {batch, rows, (heads + 2 * kv_heads) * size}));
    } else {
      add_input(0, tensor(type, {batch, rows, heads * size}));
      const int64_t new_rows = input_.rarely(8) ? 0 : rows;
      add_input(1, tensor(type, {batch, new_rows, kv_heads * size}));
      add_input(2, tensor(type, {batch, new_rows, kv_heads * size}));
    }
    const int64_t past_rows = in_place ? capacity : past;
    attn_tensor* caches[2] = {nullptr, nullptr};
    for (uint32_t i = 0; i < 2 && has_past; ++i) {
      caches[i] = &tensor(type, {batch, kv_heads, past_rows, size});
      add_input(3 + i, *caches[i]);
    }
    const int32_t total = static_cast<int32_t>(has_past ? capacity : rows);
    attn_tensor& seqlens = tensor(int32, {batch});
    values(seqlens, total - 1, static_cast<size_t>(batch));
    add_input(5, seqlens);
    attn_tensor& bound = tensor(int32, {});
    values(bound, total, 1);
    add_input(6, bound);
    if ((more & 1) != 0) {
      const int64_t half = size / 2;
      add_input(7, tensor(type, {capacity, half}));
      add_input(8, tensor(type, {capacity, half}));
    }
    if ((more & 2) != 0) {
      attn_tensor& positions = tensor({ATTN_DTYPE_INT, 64, 1}, {batch, rows});
      if (positions.data != nullptr) std::memset(positions.data, 0, positions.data_bytes);
      add_input(9, positions);
    }
    if ((more & 4) != 0)
      add_input(10, tensor(type, {1, input_.one_of({int64_t{1}, heads}), rows, capacity}));
    if ((more & 8) != 0) add_input(11, tensor(type, {heads}));
    if ((more & 16) != 0) {
      add_input(14, tensor(type, {size}));
      add_input(15, tensor(type, {size}));
    }

    add_output(0, tensor(type, {batch, rows, heads * size}));
    for (uint32_t i = 0; i < 2 && has_present; ++i) {
      if (in_place && caches[i] != nullptr) {
        add_output(1 + i, *caches[i]);
      } else {
        add_output(1 + i, tensor(type, {batch, kv_heads, capacity, size}));
      }
    }
    if ((more & 32) != 0) add_output(3, tensor(type, {batch, heads, rows, total}));
    if ((more & 64) != 0) {
      add_output(ATTN_SLOT_LOG_SUM_EXP, tensor({ATTN_DTYPE_FLOAT, 32, 1}, {batch, heads, rows}));
    }
  }

  int64_t any_size() {
    return input_.one_of<int64_t>({0, 1, 2, 3, 5, 16, -1, -2, 300, INT64_MIN, INT64_MAX,
                                   int64_t{1} << 31, int64_t{1} << 40, int64_t{1} << 62});
  }

  // Changes one field of one tensor or argument. The memory behind a tensor is never stated larger
  // than it is: that would be the caller's lie.
  void damage() {
    attn_tensor& victim = tensors_[input_.byte() % count_];
    const uint8_t axis = input_.byte() % 8;
    switch (input_.byte() % 14) {
      case 0:
        victim.shape[axis] = any_size();
        break;
      case 1:
        victim.strides[axis] = any_size();
        break;
      case 2:
        victim.strides[axis] = input_.one_of<int64_t>({0, -1, 1, 2, -8, 24});
        break;
      case 3:
        victim.ndim = input_.number<int32_t>({0, 1, 2, 3, 4, 5, 8, 9, -1});
        break;
      case 4:
        victim.dtype = {input_.number<uint8_t>({0, 1, 2, 4, 6, 10}),
                        input_.number<uint8_t>({8, 16, 32, 64, 0, 4}),
                        input_.number<uint16_t>({1, 1, 1, 2, 0})};
        break;
      case 5:
        victim.device_type = input_.number<int32_t>({0, 1, 2, 3, 13});
        victim.device_id = input_.number<int32_t>({0, 0, 1});
        break;
      case 6:
        victim.byte_offset = input_.number<uint64_t>({0, 1, 4, 32, uint64_t{1} << 63});
        break;
      case 7:
        if (victim.data_bytes > 1) victim.data_bytes = 1 + input_.byte() % victim.data_bytes;
        break;
      case 8:
        victim.data = nullptr;
        break;
      case 9:
        victim.flags = input_.number<uint32_t>({0, 1, 2});
        break;
      case 10:
        victim.struct_size = input_.one_of<uint32_t>({0, 4, 8, 24, 100, 0xffffffffu, 5000});
        break;
      case 11:
        inputs_[input_.byte() % input_count_].slot = input_.number<uint32_t>({0, 3, 9, 12, 16, 17});
        break;
      case 12:
        outputs_[input_.byte() % output_count_].slot =
            input_.number<uint32_t>({0, 1, 2, 3, 0x1000, 7});
        break;
      default:
        alias();
        break;
    }
  }

  // Lets a tensor share the memory of another, or takes one away.
  void alias() {
    attn_arg& argument = input_.rarely(2) ? inputs_[input_.byte() % input_count_]
                                          : outputs_[input_.byte() % output_count_];
    const uint8_t choice = input_.byte();
    if (choice % 8 == 7) {
      argument.tensor = nullptr;
    } else if (choice % 8 == 6) {
      argument.reserved = 1;
    } else {
      argument.tensor = &tensors_[choice / 8 % count_];
    }
  }

  Input& input_;
  bool shapes_only_ = false;
  std::array<attn_tensor, kMaxTensors> tensors_;
  size_t count_ = 0;
  std::array<attn_arg, 24> inputs_{};
  std::array<attn_arg, 8> outputs_{};
  uint32_t input_count_ = 0, output_count_ = 0;
};

}  // namespace attn::fuzz
