// Arguments of a call, for languages that cannot lay out arrays of C structs themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attn_c.h"

// A list of attn_arg with the tensors that they point to, and of aliases. It owns the descriptions,
// never the data. Threads: one at a time.
class ArgumentList {
 public:
  // Adds a tensor in memory. `strides` count elements; `address` is the first element's.
  // False where there are more than ATTN_MAX_RANK axes, or the numbers of both differ.
  bool add_memory(uint32_t slot, uint32_t flags, int32_t device_type, int32_t device_id,
                  uint32_t code, uint32_t bits, const std::vector<int64_t>& shape,
                  const std::vector<int64_t>& strides, uint64_t address) {
    if (shape.size() > ATTN_MAX_RANK || strides.size() != shape.size()) return false;
    attn_tensor* tensor = add(slot, device_type, device_id, code, bits, shape);
    tensor->flags = flags | ATTN_TENSOR_BROADCAST;  // strides are always stated
    for (size_t axis = 0; axis < strides.size(); ++axis) tensor->strides[axis] = strides[axis];
    tensor->data = reinterpret_cast<void*>(static_cast<uintptr_t>(address));
    return true;
  }

  // Adds a tensor of which only type, shape and place are known; -1 is any extent.
  bool add_shape(uint32_t slot, int32_t device_type, int32_t device_id, uint32_t code,
                 uint32_t bits, const std::vector<int64_t>& shape) {
    if (shape.size() > ATTN_MAX_RANK) return false;
    add(slot, device_type, device_id, code, bits, shape);
    return true;
  }

  // Adds a copy of a description; null as add_name does.
  void add_tensor(uint32_t slot, const attn_tensor* tensor) {
    if (tensor == nullptr) {
      add_name(slot);
      return;
    }
    tensors_.push_back(std::make_unique<attn_tensor>(*tensor));
    args_.push_back({slot, 0, tensors_.back().get()});
  }

  // Names a slot without a tensor: an output whose shape follows from the inputs.
  void add_name(uint32_t slot) { args_.push_back({slot, 0, nullptr}); }

  // Says that an output shares an input's memory.
  void add_alias(uint32_t input_slot, uint32_t output_slot) {
    aliases_.push_back({input_slot, output_slot});
  }

  uint32_t size() const { return static_cast<uint32_t>(args_.size()); }

  // The tensor of argument `index`, owned by the list; null where there is none.
  const attn_tensor* tensor(uint32_t index) const {
    return index < args_.size() ? args_[index].tensor : nullptr;
  }

  const attn_arg* data() const { return args_.data(); }
  const attn_alias* aliases() const { return aliases_.data(); }
  uint32_t alias_count() const { return static_cast<uint32_t>(aliases_.size()); }

 private:
  attn_tensor* add(uint32_t slot, int32_t device_type, int32_t device_id, uint32_t code,
                   uint32_t bits, const std::vector<int64_t>& shape) {
    tensors_.push_back(std::make_unique<attn_tensor>(attn_init<attn_tensor>()));
    attn_tensor* tensor = tensors_.back().get();
    tensor->device_type = device_type;
    tensor->device_id = device_id;
    tensor->dtype = {static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1};
    tensor->ndim = static_cast<int32_t>(shape.size());
    for (size_t axis = 0; axis < shape.size(); ++axis) tensor->shape[axis] = shape[axis];
    args_.push_back({slot, 0, tensor});
    return tensor;
  }

  std::vector<std::unique_ptr<attn_tensor>> tensors_;
  std::vector<attn_arg> args_;
  std::vector<attn_alias> aliases_;
};
