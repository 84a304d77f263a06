/* attn_c host help for C++17: memory, streams and graphs of attn_c_host.h that release themselves.
 * Each object keeps a copy of the context's C handle, not a reference: the Context must outlive it,
 * but for graphs, which keep theirs. */
#ifndef ATTN_C_HOST_HPP_
#define ATTN_C_HOST_HPP_

#include "attn_c.hpp"
#include "attn_c_host.h"

namespace attn_c {

/* The table of host help, for programs that hand it on. */
inline const attn_host_api& host_api(uint32_t minimum_abi = ATTN_HOST_ABI_VERSION) {
  const attn_host_api* table = nullptr;
  detail::check([&](attn_error* error) { return attn_host_get_api(minimum_abi, &table, error); });
  return detail::checked_table(table, minimum_abi, ATTN_HOST_ABI_VERSION);
}

/* Copies bytes between any two memories of the context or the host, in the order of `stream`. */
inline void copy(const Context& context, void* target, const void* source, uint64_t bytes,
                 void* stream = nullptr) {
  detail::check([&](attn_error* error) {
    return attn_host_memory_copy(context.get(), target, source, bytes, stream, error);
  });
}

/* Memory on a context's device. */
class Memory {
 public:
  /* `kind` is one of ATTN_MEMORY_...; contents are arbitrary. */
  Memory(const Context& context, uint64_t bytes, uint32_t kind = ATTN_MEMORY_DEVICE)
      : context_(context.get()), kind_(kind), bytes_(bytes) {
    detail::check([&](attn_error* error) {
      return attn_host_memory_alloc(context_, kind_, bytes_, &data_, error);
    });
  }
  Memory(Memory&& other) noexcept
      : context_(other.context_),
        kind_(other.kind_),
        bytes_(other.bytes_),
        data_(std::exchange(other.data_, nullptr)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(kind_, other.kind_);
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~Memory() {
    if (data_ != nullptr) attn_host_memory_free(context_, kind_, data_, nullptr);
  }

  /* Its address on the device; null where it was moved from. */
  void* data() const noexcept { return data_; }
  /* Its size. */
  uint64_t bytes() const noexcept { return bytes_; }

 private:
  attn_context* context_;
  uint32_t kind_;
  uint64_t bytes_;
  void* data_ = nullptr;
};

/* An instantiated graph of captured executions; one thread at a time. */
class Graph : public detail::Handle<attn_host_graph, attn_host_graph_release> {
 public:
  Graph() = default;
  /* Takes one reference over. */
  explicit Graph(attn_host_graph* owned) noexcept : Handle(owned) {}
  void launch(void* stream) const {
    detail::check([&](attn_error* error) { return attn_host_graph_launch(get(), stream, error); });
  }
};

/* A stream of a context's device; the CPU's is null. */
class Stream {
 public:
  explicit Stream(const Context& context) : context_(context.get()) {
    detail::check(
        [&](attn_error* error) { return attn_host_stream_create(context_, &stream_, error); });
  }
  Stream(Stream&& other) noexcept
      : context_(std::exchange(other.context_, nullptr)), stream_(other.stream_) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~Stream() {
    if (context_ != nullptr) attn_host_stream_release(context_, stream_, nullptr);
  }

  /* For ExecuteOptions::stream. */
  void* get() const noexcept { return stream_; }
  void synchronize() const {
    detail::check(
        [&](attn_error* error) { return attn_host_stream_synchronize(context_, stream_, error); });
  }
  void begin_capture() const {
    detail::check(
        [&](attn_error* error) { return attn_host_graph_begin_capture(context_, stream_, error); });
  }
  Graph end_capture() const {
    attn_host_graph* graph = nullptr;
    detail::check([&](attn_error* error) {
      return attn_host_graph_end_capture(context_, stream_, &graph, error);
    });
    return Graph(graph);
  }

 private:
  attn_context* context_;
  void* stream_ = nullptr;
};

}  // namespace attn_c

#endif /* ATTN_C_HOST_HPP_ */
