// A matrix case on the device: every fenced host buffer has a device copy, so that what the device
// left behind is checked by the same code as what the CPU left.
#pragma once

#include <string>
#include <vector>

#include "gpu/device.h"
#include "matrix/attention_case.h"
#include "matrix/gqa_case.h"

namespace attn::gpu {

// What stays in host memory: total_sequence_length, seqlens_k.
struct OnHost {
  bool bound = false;
  bool lengths = false;
};

class Mirror {
 public:
  struct NamedTensor {
    test::Tensor* tensor;
    std::string name;
  };
  // Keeps a reference to the case. `tensors` are its own; those that are unbound do not count, and
  // those that are not named stay in host memory.
  Mirror(const Gpu& gpu, matrix::Case& c, const std::vector<NamedTensor>& tensors);
  Mirror(const Gpu& gpu, matrix::GqaCase& c, OnHost on_host);

  // Host contents to the device, fences included.
  void upload(const Stream& stream);
  // Device contents back into the host buffers. Empty, or which fences were written.
  std::string download(const Stream& stream);
  // The same for one tensor of the case.
  void upload(const test::Tensor& tensor, const Stream& stream);
  bool download(const test::Tensor& tensor, const Stream& stream);

  // The case's arguments at their device addresses.
  test::Arguments inputs() const { return moved(case_.inputs()); }
  test::Arguments outputs() const { return moved(case_.outputs()); }

 private:
  struct Copy {
    test::Buffer* host;
    std::string name;
    Memory memory;
  };
  Copy& copy_of(const test::Tensor& tensor);
  test::Arguments moved(const test::Arguments& arguments) const;

  matrix::Case& case_;
  int32_t device_id_;
  std::vector<Copy> copies_;
};

// All tensors of a case of Attention.
std::vector<Mirror::NamedTensor> tensors_of(matrix::AttentionCase& c);

}  // namespace attn::gpu
