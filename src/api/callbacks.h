// The host's callbacks, copied when a context is made and given back when its last use has ended.
#pragma once

#include <cstdint>
#include <string_view>

#include "attn_c.h"
#include "core/host_allocator.h"

namespace attn::api {

class Callbacks final : public HostAllocator {
 public:
  Callbacks() = default;
  Callbacks(const Callbacks&) = delete;
  Callbacks& operator=(const Callbacks&) = delete;
  ~Callbacks() override;

  // Copies and checks what the desc names. Throws INVALID_ARGUMENT for a missing function.
  // `environment_log_level` counts where the logger itself says nothing.
  void take(const attn_context_desc& desc, int32_t environment_log_level);

  // From here on the destructor calls release_user: a context that could not be made leaves the
  // callbacks with the caller.
  void own() { owned_ = true; }

  bool has_allocator() const { return allocator_.allocate != nullptr; }
  bool has_executor() const { return executor_.parallel_for != nullptr; }
  const attn_executor& executor() const { return executor_; }

  // The host's allocator; null where it gave none.
  const HostAllocator* allocator() const { return has_allocator() ? this : nullptr; }
  void* allocate(uint32_t kind, uint64_t bytes, uint64_t alignment, void* stream) const override;
  void deallocate(uint32_t kind, void* memory, uint64_t bytes,
                  void* stream) const noexcept override;

  bool logs(int32_t severity) const {
    return logger_.log != nullptr && severity >= logger_.minimum_severity;
  }
  // Never throws: what a logger throws is dropped. `text` is terminated.
  void log(int32_t severity, const char* text) const noexcept;

 private:
  attn_allocator allocator_{};
  attn_logger logger_{};
  attn_executor executor_{};
  bool owned_ = false;
};

}  // namespace attn::api
