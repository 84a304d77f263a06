// Names one specialised kernel: a source, an entry and its macro definitions.
#pragma once

#include <string>
#include <vector>

namespace attn::cuda {

struct KernelVariant {
  std::string source;                    // "softmax/attention_mma.cu"
  std::string entry;                     // "attn_attention_mma"
  std::vector<std::string> definitions;  // "HEAD_SIZE=128", in a fixed order
  int threads = 0;
  int shared_bytes = 0;  // dynamic shared memory

  // Source and definitions in one line: what is compiled once. Entries of one source share it.
  std::string text() const {
    std::string out = source;
    for (const std::string& definition : definitions) out += " " + definition;
    return out;
  }
};

}  // namespace attn::cuda
