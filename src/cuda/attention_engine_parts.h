// What the attention engines have in common: reasons, checks of layouts, definitions of kernels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/attention_engines.h"

namespace attn::cuda {

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
// A head of whole tensor-core tiles.
inline int padded(int size) { return (size + 15) / 16 * 16; }
inline int64_t group_of(const AttentionSpec& spec) { return spec.q_heads / spec.kv_heads; }
inline bool is_16_bit(DType type) { return type == kFloat16 || type == kBfloat16; }

// Stores the reason where it is wanted; false.
bool refuse(std::string* why_not, std::string reason);

// Whether rows of this spec can be read in pieces of 16 bytes by kernels that work in tiles.
bool fits_tiles(const AttentionSpec& spec, int elements_in_16_bytes, std::string* why_not);

// A variant's dynamic shared memory, with what its kernel holds beside it statically, must fit the
// device's limit for one block.
bool fits_shared_memory(const KernelVariant& variant, int static_bytes, const DeviceTraits& device,
                        std::string* why_not);

// Whether all rows of the problem begin on 16 bytes.
bool all_aligned(const AttentionProblem& problem);

// What the decode engine takes: its rows fill few tiles.
bool are_few_rows(const AttentionSpec& spec, int64_t rows);

// The macros that every attention kernel is specialised by; the type comes first.
std::vector<std::string> softmax_definitions(const AttentionSpec& spec);
void define(KernelVariant& variant, const char* name, int value);

}  // namespace attn::cuda
