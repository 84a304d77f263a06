// The allocator that a host gave its context, as back ends see it.
#pragma once

#include <cstdint>

namespace attn {

// Threads: any. Neither function is called with a lock of the library held.
class HostAllocator {
 public:
  virtual ~HostAllocator() = default;

  // `bytes` of the `kind` ATTN_MEMORY_..., aligned to `alignment` (a power of 2), ordered on
  // `stream` (null: usable at once). Throws OUT_OF_MEMORY where there is none, INVALID_ARGUMENT for
  // memory that is not aligned as asked.
  virtual void* allocate(uint32_t kind, uint64_t bytes, uint64_t alignment, void* stream) const = 0;

  // Gives back what allocate() gave, of that size, behind what `stream` holds.
  virtual void deallocate(uint32_t kind, void* memory, uint64_t bytes,
                          void* stream) const noexcept = 0;
};

}  // namespace attn
