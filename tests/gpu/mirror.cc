#include "gpu/mirror.h"

#include <stdexcept>

namespace attn::gpu {

namespace {

std::vector<Mirror::NamedTensor> tensors_of(matrix::GqaCase& c, OnHost on_host) {
  std::vector<Mirror::NamedTensor> tensors;
  for (uint32_t slot = 0; slot < matrix::kInputs; ++slot) {
    if (slot == matrix::kTotalSequenceLength && on_host.bound) continue;
    if (slot == matrix::kSeqlensK && on_host.lengths) continue;
    tensors.push_back({&c.in[slot], "input " + std::to_string(slot)});
  }
  for (uint32_t slot = 0; slot < matrix::kOutputs; ++slot) {
    tensors.push_back({&c.out[slot], "output " + std::to_string(slot)});
  }
  return tensors;
}

}  // namespace

Mirror::Mirror(const Gpu& gpu, matrix::Case& c, const std::vector<NamedTensor>& tensors)
    : case_(c), device_id_(gpu.id()) {
  for (const NamedTensor& one : tensors) {
    if (!one.tensor->bound()) continue;
    test::Buffer& host = one.tensor->buffer();
    copies_.push_back({&host, one.name, Memory(gpu, host.size(), host.data())});
  }
}

Mirror::Mirror(const Gpu& gpu, matrix::GqaCase& c, OnHost on_host)
    : Mirror(gpu, c, tensors_of(c, on_host)) {}

void Mirror::upload(const Stream& stream) {
  for (Copy& copy : copies_) copy.memory.upload(copy.host->data(), stream);
}

std::string Mirror::download(const Stream& stream) {
  std::string findings;
  for (Copy& copy : copies_) {
    if (!copy.memory.download(copy.host->data(), stream)) {
      findings += "  the device fence of " + copy.name + " was written\n";
    }
  }
  return findings;
}

Mirror::Copy& Mirror::copy_of(const test::Tensor& tensor) {
  for (Copy& copy : copies_) {
    if (copy.host == &tensor.buffer()) return copy;
  }
  throw std::logic_error("the tensor has no device copy");
}

void Mirror::upload(const test::Tensor& tensor, const Stream& stream) {
  Copy& copy = copy_of(tensor);
  copy.memory.upload(copy.host->data(), stream);
}

bool Mirror::download(const test::Tensor& tensor, const Stream& stream) {
  Copy& copy = copy_of(tensor);
  return copy.memory.download(copy.host->data(), stream);
}

test::Arguments Mirror::moved(const test::Arguments& arguments) const {
  test::Arguments list;
  for (uint32_t i = 0; i < arguments.size(); ++i) {
    attn_tensor tensor = *arguments.data()[i].tensor;
    const auto* address = static_cast<const unsigned char*>(tensor.data);
    for (const Copy& copy : copies_) {
      if (address < copy.host->data() || address > copy.host->data() + copy.host->size()) continue;
      tensor.data = copy.memory.data() + (address - copy.host->data());
      tensor.device_type = ATTN_DEVICE_CUDA;
      tensor.device_id = device_id_;
    }
    list.add(arguments.data()[i].slot, tensor);
  }
  return list;
}

std::vector<Mirror::NamedTensor> tensors_of(matrix::AttentionCase& c) {
  using matrix::AttentionCase;
  std::vector<Mirror::NamedTensor> tensors;
  for (uint32_t slot = 0; slot < AttentionCase::kInputs; ++slot) {
    tensors.push_back({&c.in[slot], "input " + std::to_string(slot)});
  }
  for (uint32_t slot = 0; slot < AttentionCase::kOutputs; ++slot) {
    tensors.push_back({&c.out[slot], "output " + std::to_string(slot)});
  }
  return tensors;
}

}  // namespace attn::gpu
