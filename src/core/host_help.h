// Memory, streams and graphs of a device, for programs that bring none of their own: what
// attn_c_host.h offers, as a back end implements it. Any threads; throws Error.
#pragma once

#include <cstdint>
#include <memory>

namespace attn {

// A graph of captured executions, ready to launch.
class HostGraph {
 public:
  virtual ~HostGraph() = default;
  virtual void launch(void* stream) = 0;
};

class HostHelp {
 public:
  virtual ~HostHelp() = default;
  virtual void* allocate(uint32_t kind, uint64_t bytes) = 0;  // kind: one ATTN_MEMORY_...
  virtual void deallocate(uint32_t kind, void* memory) = 0;
  virtual void copy(void* target, const void* source, uint64_t bytes, void* stream) = 0;
  virtual void* create_stream() = 0;
  virtual void synchronize(void* stream) = 0;
  virtual void release_stream(void* stream) = 0;
  virtual void begin_capture(void* stream) = 0;
  virtual std::unique_ptr<HostGraph> end_capture(void* stream) = 0;
};

}  // namespace attn
