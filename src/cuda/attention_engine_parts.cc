#include "cuda/attention_engine_parts.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "cuda/launch_params.h"

namespace attn::cuda {
namespace {

// The one place keys are read from, if it is one: the cache, or the new rows where there is none.
bool reads_one_buffer(const AttentionSpec& spec) {
  const bool key = !spec.key_fresh || (!spec.key_cached && !spec.key_transform.any());
  const bool value = !spec.value_fresh || !spec.value_cached;
  return key && value;
}

// Rows can be copied in pieces of 16 bytes.
bool aligned(const View4& v, int elements_in_16_bytes) {
  const int mask = elements_in_16_bytes - 1;
  return (reinterpret_cast<uintptr_t>(v.data) & 15) == 0 && (v.batch & mask) == 0 &&
         (v.head & mask) == 0 && (v.row & mask) == 0;
}

}  // namespace

bool refuse(std::string* why_not, std::string reason) {
  if (why_not != nullptr) *why_not = std::move(reason);
  return false;
}

bool fits_tiles(const AttentionSpec& spec, int elements_in_16_bytes, std::string* why_not) {
  if (!spec.unit_channel) return refuse(why_not, "channels are not contiguous");
  if (spec.head_size > 256 || spec.v_head_size > 256) {
    return refuse(why_not,
                  cat("head size ", std::max(spec.head_size, spec.v_head_size), " is above 256"));
  }
  if (spec.head_size % elements_in_16_bytes != 0 || spec.v_head_size % elements_in_16_bytes != 0) {
    return refuse(why_not, cat("a head of ", spec.head_size, " or ", spec.v_head_size,
                               " elements is no multiple of 16 bytes"));
  }
  if (spec.scores != ScoreStage::kNone) return refuse(why_not, "score outputs are wanted");
  if (!reads_one_buffer(spec)) {
    return refuse(why_not, "keys come from a past buffer and new rows at once");
  }
  return true;
}

bool fits_shared_memory(const KernelVariant& variant, int static_bytes, const DeviceTraits& device,
                        std::string* why_not) {
  const int bytes = variant.shared_bytes + static_bytes;
  if (bytes <= device.shared_bytes_per_block) return true;
  return refuse(why_not, cat("needs ", bytes, " bytes of shared memory a block, ",
                             device.architecture, " has ", device.shared_bytes_per_block));
}

bool all_aligned(const AttentionProblem& problem) {
  const int in_16 = problem.spec.type == kFloat32 ? 4 : 8;
  const View4& key = problem.spec.key_fresh ? problem.key_fresh : problem.key;
  const View4& value = problem.spec.value_fresh ? problem.value_fresh : problem.value;
  return aligned(problem.query, in_16) && aligned(key, in_16) && aligned(value, in_16) &&
         aligned(problem.output, in_16);
}

std::vector<std::string> softmax_definitions(const AttentionSpec& spec) {
  return {cat("ATTN_TYPE=", type_number(spec.type)),
          cat("HEAD_SIZE=", spec.head_size),
          cat("V_HEAD_SIZE=", spec.v_head_size),
          cat("MASK_KIND=", static_cast<int>(spec.mask)),
          cat("SINK_KIND=", static_cast<int>(spec.sink)),
          cat("SOFTCAP=", spec.softcap != 0 ? 1 : 0),
          cat("HAS_LSE=", spec.log_sum_exp ? 1 : 0),
          cat("QUERY_TRANSFORM=", spec.query_transform.any() ? 1 : 0),
          cat("PLAIN_SCALE=", spec.scale > 0 ? 1 : 0),
          cat("PACKED=", spec.packed ? 1 : 0)};
}

void define(KernelVariant& variant, const char* name, int value) {
  variant.definitions.push_back(cat(name, "=", value));
}

bool are_few_rows(const AttentionSpec& spec, int64_t rows) {
  return rows <= kDecodeQueries && rows * group_of(spec) <= 64;
}

}  // namespace attn::cuda
