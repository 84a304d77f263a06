#include "api/callbacks.h"

#include "api/struct_io.h"
#include "core/error.h"

namespace attn::api {
namespace {

void give_back(void (*release_user)(void*), void* user) noexcept {
  if (release_user == nullptr) return;
  try {
    release_user(user);
  } catch (...) {  // nobody is there to be told
  }
}

const char* kind_text(uint32_t kind) {
  switch (kind) {
    case ATTN_MEMORY_DEVICE:
      return "device";
    case ATTN_MEMORY_PINNED:
      return "pinned";
    default:
      return "host";
  }
}

void check_function(bool present, const char* name) {
  if (!present) fail_argument(name, " is null; this callback struct needs it");
}

}  // namespace

Callbacks::~Callbacks() {
  if (!owned_) return;
  give_back(executor_.release_user, executor_.user);
  give_back(allocator_.release_user, allocator_.user);
  give_back(logger_.release_user, logger_.user);
}

void Callbacks::take(const attn_context_desc& desc, int32_t environment_log_level) {
  if (desc.allocator != nullptr) {
    const attn_allocator copy = copy_in(desc.allocator, "allocator");
    check_reserved(copy.reserved, "allocator");
    check_function(copy.allocate != nullptr, "allocator.allocate");
    check_function(copy.deallocate != nullptr, "allocator.deallocate");
    allocator_ = copy;
  }
  if (desc.logger != nullptr) {
    attn_logger copy = copy_in(desc.logger, "logger");
    check_function(copy.log != nullptr, "logger.log");
    if (copy.minimum_severity < 0 || copy.minimum_severity > ATTN_LOG_ERROR) {
      fail_argument("logger.minimum_severity is ", copy.minimum_severity,
                    "; accepted are 0 (warning) and 1 (debug) to 4 (error)");
    }
    if (copy.minimum_severity == 0) copy.minimum_severity = environment_log_level;
    if (copy.minimum_severity == 0) copy.minimum_severity = ATTN_LOG_WARNING;
    logger_ = copy;
  }
  if (desc.executor != nullptr) {
    const attn_executor copy = copy_in(desc.executor, "executor");
    check_reserved(copy.reserved, "executor");
    check_function(copy.concurrency != nullptr, "executor.concurrency");
    check_function(copy.parallel_for != nullptr, "executor.parallel_for");
    executor_ = copy;
  }
}

void* Callbacks::allocate(uint32_t kind, uint64_t bytes, uint64_t alignment, void* stream) const {
  void* memory = nullptr;
  try {
    memory = allocator_.allocate(allocator_.user, kind, bytes, alignment, stream);
  } catch (...) {  // it may not throw; what it throws counts as none
  }
  if (memory == nullptr) {
    throw_error(ATTN_OUT_OF_MEMORY, cat("the context's allocator gave no ", kind_text(kind),
                                        " memory of ", bytes, " bytes"));
  }
  if (reinterpret_cast<uintptr_t>(memory) % alignment != 0) {
    deallocate(kind, memory, bytes, stream);
    fail_argument("the context's allocator gave ", kind_text(kind),
                  " memory that is not aligned to ", alignment, " bytes");
  }
  return memory;
}

void Callbacks::deallocate(uint32_t kind, void* memory, uint64_t bytes,
                           void* stream) const noexcept {
  try {
    allocator_.deallocate(allocator_.user, kind, memory, bytes, stream);
  } catch (...) {  // nobody is there to be told
  }
}

void Callbacks::log(int32_t severity, const char* text) const noexcept {
  try {
    logger_.log(logger_.user, severity, text);
  } catch (...) {  // a log line that is lost harms nothing
  }
}

}  // namespace attn::api
