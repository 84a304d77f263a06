// Host help: memory and streams for programs that bring none. A back end without help of its own
// runs on the host: its memory is the host's for every kind, and its streams are null.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "api/context.h"
#include "api/guard.h"
#include "attn_c_host.h"

namespace attn::api {
namespace {

constexpr size_t kAlignment = 256;

void check_kind(uint32_t kind) {
  if (kind == ATTN_MEMORY_HOST || kind == ATTN_MEMORY_DEVICE || kind == ATTN_MEMORY_PINNED) return;
  fail_argument("kind is ", kind, "; accepted are 1 (host), 2 (device) and 4 (pinned)");
}

void check_stream(const void* stream) {
  if (stream == nullptr) return;
  fail_argument("stream is given; the CPU runs at once and has no streams: pass null");
}

void* allocate(uint64_t bytes) {
  const uint64_t size = bytes == 0 ? 1 : bytes;
  void* memory = nullptr;
  if (size > PTRDIFF_MAX || posix_memalign(&memory, kAlignment, size) != 0) {
    throw_error(ATTN_OUT_OF_MEMORY, cat("no host memory of ", bytes, " bytes"));
  }
  return memory;
}

void check_copy(const void* target, const void* source, uint64_t bytes) {
  if (bytes == 0) return;
  if (target == nullptr) fail_argument("target is null, but bytes is ", bytes);
  if (source == nullptr) fail_argument("source is null, but bytes is ", bytes);
  const uintptr_t to = reinterpret_cast<uintptr_t>(target);
  const uintptr_t from = reinterpret_cast<uintptr_t>(source);
  if ((to > from ? to - from : from - to) < bytes) {
    fail_argument("target and source overlap; copies of ", bytes, " bytes may not");
  }
}

// Calls `body` with the help of the context's back end, null where the host's own serves. The
// context is kept meanwhile.
template <class Body>
attn_status with_help(attn_context* context, attn_error* error, const Body& body) {
  return guard(error, [&](Subject& subject) {
    attn_context& self = checked(context, "context");
    subject.keep(self);
    body(self.backend->host_help());
  });
}

}  // namespace
}  // namespace attn::api

using attn::api::with_help;

attn_status attn_host_memory_alloc(attn_context* context, uint32_t kind, uint64_t bytes,
                                   void** memory, attn_error* error) {
  return with_help(context, error, [&](attn::HostHelp* help) {
    attn::api::check_kind(kind);
    if (memory == nullptr) attn::fail_argument("memory is null; it receives the address");
    *memory = help != nullptr ? help->allocate(kind, bytes) : attn::api::allocate(bytes);
  });
}

attn_status attn_host_memory_free(attn_context* context, uint32_t kind, void* memory,
                                  attn_error* error) {
  return with_help(context, error, [&](attn::HostHelp* help) {
    attn::api::check_kind(kind);
    if (memory == nullptr) return;
    if (help != nullptr) {
      help->deallocate(kind, memory);
    } else {
      std::free(memory);
    }
  });
}

attn_status attn_host_memory_copy(attn_context* context, void* target, const void* source,
                                  uint64_t bytes, void* stream, attn_error* error) {
  return with_help(context, error, [&](attn::HostHelp* help) {
    if (help == nullptr) attn::api::check_stream(stream);
    attn::api::check_copy(target, source, bytes);
    if (bytes == 0) return;
    if (help != nullptr) {
      help->copy(target, source, bytes, stream);
    } else {
      std::memcpy(target, source, bytes);
    }
  });
}

attn_status attn_host_stream_create(attn_context* context, void** stream, attn_error* error) {
  return with_help(context, error, [&](attn::HostHelp* help) {
    if (stream == nullptr) attn::fail_argument("stream is null; it receives the stream");
    *stream = help != nullptr ? help->create_stream() : nullptr;
  });
}

attn_status attn_host_stream_synchronize(attn_context* context, void* stream, attn_error* error) {
  return with_help(context, error, [&](attn::HostHelp* help) {
    if (help != nullptr) {
      help->synchronize(stream);
    } else {
      attn::api::check_stream(stream);
    }
  });
}

attn_status attn_host_stream_release(attn_context* context, void* stream, attn_error* error) {
  return with_help(context, error, [&](attn::HostHelp* help) {
    if (help != nullptr) {
      help->release_stream(stream);
    } else {
      attn::api::check_stream(stream);
    }
  });
}
