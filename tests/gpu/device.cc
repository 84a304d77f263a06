#include "gpu/device.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace attn::gpu {
namespace {

constexpr unsigned char kFence = 0xA5;
constexpr int64_t kFenceBytes = 512;

struct Devices {
  std::vector<int32_t> usable;
  std::string why_none;
};

// A reason may name every path that was tried, one a line; a skip shows one line.
std::string on_one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

Devices list_devices() {
  Devices found;
  uint32_t count = 0;
  must("device_count", [&](attn_error* error) { return attn_device_count(&count, error); });
  for (uint32_t i = 0; i < count; ++i) {
    attn_device_info info = ATTN_DEVICE_INFO_INIT;
    must("device_get_info",
         [&](attn_error* error) { return attn_device_get_info(i, &info, error); });
    if (info.device_type != ATTN_DEVICE_CUDA) continue;
    if (info.available != 0) {
      found.usable.push_back(info.device_id);
    } else if (found.why_none.empty()) {
      found.why_none = "no GPU: " + on_one_line(info.reason);
    }
  }
  if (found.why_none.empty()) found.why_none = "no GPU: the library lists no CUDA device";
  return found;
}

const Devices& devices() {
  static const Devices instance = list_devices();
  return instance;
}

}  // namespace

const std::vector<int32_t>& Gpu::usable() { return devices().usable; }
const std::string& Gpu::why_none() { return devices().why_none; }

Gpu& Gpu::first() {
  static Gpu* const instance = new Gpu(usable().at(0));
  return *instance;
}

Gpu::Gpu(int32_t id, const attn_allocator* allocator) : id_(id) {
  attn_context_desc desc = ATTN_CONTEXT_DESC_INIT;
  desc.device_type = ATTN_DEVICE_CUDA;
  desc.device_id = id;
  desc.allocator = allocator;
  const test::Outcome outcome =
      test::create(context_, [&](attn_context** context, attn_error* error) {
        return attn_context_create(&desc, context, error);
      });
  if (!outcome.ok()) throw std::runtime_error("no context on the GPU: " + outcome.message);
}

Stream::Stream(const Gpu& gpu) : context_(gpu.context()) {
  must("host_stream_create",
       [&](attn_error* error) { return attn_host_stream_create(context_, &stream_, error); });
}

Stream::~Stream() { attn_host_stream_release(context_, stream_, nullptr); }

void Stream::wait() const {
  must("host_stream_synchronize",
       [&](attn_error* error) { return attn_host_stream_synchronize(context_, stream_, error); });
}

void copy(const Gpu& gpu, void* target, const void* source, uint64_t bytes, const Stream& stream) {
  must("host_memory_copy", [&](attn_error* error) {
    return attn_host_memory_copy(gpu.context(), target, source, bytes, stream.get(), error);
  });
  stream.wait();
}

Memory::Memory(const Gpu& gpu, int64_t bytes, const void* address_like)
    : context_(gpu.context()), size_(bytes) {
  const auto low_bits = static_cast<int64_t>(reinterpret_cast<uintptr_t>(address_like) & 255);
  before_ = kFenceBytes + low_bits;
  behind_ = number_from_environment("ATTN_C_TEST_EXACT", 0) != 0 ? 0 : kFenceBytes;
  must("host_memory_alloc", [&](attn_error* error) {
    return attn_host_memory_alloc(context_, ATTN_MEMORY_DEVICE,
                                  static_cast<uint64_t>(before_ + size_ + behind_), &block_, error);
  });
  data_ = static_cast<unsigned char*>(block_) + before_;
  image_.assign(static_cast<size_t>(before_ + size_ + behind_), kFence);
}

Memory::~Memory() { attn_host_memory_free(context_, ATTN_MEMORY_DEVICE, block_, nullptr); }

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(context_, other.context_);
  std::swap(block_, other.block_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(before_, other.before_);
  std::swap(behind_, other.behind_);
  std::swap(image_, other.image_);
  return *this;
}

void Memory::upload(const void* host, const Stream& stream) {
  std::fill(image_.begin(), image_.end(), kFence);
  if (size_ > 0) std::memcpy(image_.data() + before_, host, static_cast<size_t>(size_));
  must("host_memory_copy", [&](attn_error* error) {
    return attn_host_memory_copy(context_, block_, image_.data(), image_.size(), stream.get(),
                                 error);
  });
  stream.wait();
}

bool Memory::download(void* host, const Stream& stream) {
  must("host_memory_copy", [&](attn_error* error) {
    return attn_host_memory_copy(context_, image_.data(), block_, image_.size(), stream.get(),
                                 error);
  });
  stream.wait();
  if (size_ > 0) std::memcpy(host, image_.data() + before_, static_cast<size_t>(size_));
  const auto is_fence = [](unsigned char byte) { return byte == kFence; };
  return std::all_of(image_.begin(), image_.begin() + before_, is_fence) &&
         std::all_of(image_.begin() + before_ + size_, image_.end(), is_fence);
}

void Memory::fill(int byte, const Stream& stream) {
  const std::vector<unsigned char> bytes(static_cast<size_t>(size_),
                                         static_cast<unsigned char>(byte));
  upload(bytes.data(), stream);
}

PlainMemory::PlainMemory(const Gpu& gpu, uint64_t bytes) : context_(gpu.context()), bytes_(bytes) {
  must("host_memory_alloc", [&](attn_error* error) {
    return attn_host_memory_alloc(context_, ATTN_MEMORY_DEVICE, bytes, &memory_, error);
  });
}

PlainMemory::~PlainMemory() {
  attn_host_memory_free(context_, ATTN_MEMORY_DEVICE, memory_, nullptr);
}

void Graph::begin(const Gpu& gpu, const Stream& stream) {
  must("host_graph_begin_capture", [&](attn_error* error) {
    return attn_host_graph_begin_capture(gpu.context(), stream.get(), error);
  });
}

Graph Graph::end(const Gpu& gpu, const Stream& stream) {
  Graph graph;
  attn_host_graph* raw = nullptr;
  must("host_graph_end_capture", [&](attn_error* error) {
    return attn_host_graph_end_capture(gpu.context(), stream.get(), &raw, error);
  });
  graph.graph_.reset(raw);
  return graph;
}

void Graph::launch(const Stream& stream) const {
  must("host_graph_launch", [&](attn_error* error) {
    return attn_host_graph_launch(graph_.get(), stream.get(), error);
  });
}

test::Handle<attn_session> make_session(const Gpu& gpu) {
  test::Handle<attn_session> session;
  const test::Outcome outcome = test::create_session(session, gpu.context());
  if (!outcome.ok()) throw std::runtime_error("no session on the GPU: " + outcome.message);
  return session;
}

attn_fault_info poll(attn_session* session) {
  attn_fault_info info = ATTN_FAULT_INFO_INIT;
  must("session_poll_faults",
       [&](attn_error* error) { return attn_session_poll_faults(session, &info, error); });
  return info;
}

attn_context_stats stats_of(const Gpu& gpu) {
  attn_context_stats stats = ATTN_CONTEXT_STATS_INIT;
  must("context_get_stats",
       [&](attn_error* error) { return attn_context_get_stats(gpu.context(), &stats, error); });
  return stats;
}

int64_t number_from_environment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == '\0' ? otherwise : std::strtoll(text, nullptr, 10);
}

}  // namespace attn::gpu
