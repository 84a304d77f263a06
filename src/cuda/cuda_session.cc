#include "cuda/cuda_session.h"

#include <utility>

#include "core/error.h"
#include "cuda/capture.h"

namespace attn::cuda {
namespace {

constexpr size_t kStateBytes = 256;  // FaultState, then the counters on a line of their own

// What a graph keeps alive. Its destructor runs on a driver thread and makes no CUDA call.
struct Held {
  std::shared_ptr<DeviceBlock> state, scratch;
  std::shared_ptr<PinnedBlock> pinned;
  std::shared_ptr<LoadedLibraries> code;
};
void release_held(void* user) { delete static_cast<Held*>(user); }

}  // namespace

CudaSession::CudaSession(std::shared_ptr<RetireList> list, const LoadedKernel* clear_kernel,
                         std::shared_ptr<LoadedLibraries> code, CudaCounters* counters)
    : list_(std::move(list)),
      clear_kernel_(clear_kernel),
      code_(std::move(code)),
      counters_(counters) {
  state_ = DeviceBlock::zeroed(list_, kStateBytes + kCounters * sizeof(uint32_t));
  pinned_ = std::make_shared<PinnedBlock>(list_, sizeof(attnk::FaultRecord));
}

CudaSession::~CudaSession() { drop_scratch(); }

// The device writes the rest of the record before its bits.
FaultReport CudaSession::poll_faults() {
  FaultReport report;
  report.bits = reinterpret_cast<const std::atomic<uint32_t>*>(&record().bits)
                    ->load(std::memory_order_acquire);
  if (report.bits == 0) return report;
  report.label = record().label;
  report.batch = record().batch;
  report.value = record().value;
  return report;
}

void CudaSession::clear_faults(void* stream) {
  ContextScope scope(list_->context());
  const Capture capture = capture_of(list_->context().driver, static_cast<CUstream>(stream));
  if (capture.active) retain_in(capture.graph);
  attnk::FaultState* state = faults();
  attnk::FaultRecord* record = device_record();
  void* arguments[] = {static_cast<void*>(&state), static_cast<void*>(&record)};
  launch_kernel(list_->context().driver, *clear_kernel_, 1, 1, static_cast<CUstream>(stream),
                arguments, false);
}

CUdeviceptr CudaSession::scratch(size_t bytes, CUstream stream, bool capturing) {
  if (scratch_ && scratch_->bytes() >= bytes) return scratch_->address();
  if (capturing) {
    throw_error(
        ATTN_CAPTURE,
        cat("the session's scratch has ", scratch_bytes(), " bytes and this call needs ", bytes,
            "; scratch does not grow while a stream captures: execute once before "
            "the capture, or give a workspace"));
  }
  std::shared_ptr<DeviceBlock> grown = std::make_shared<DeviceBlock>(list_, bytes, stream);
  const std::shared_ptr<DeviceBlock> old = drop_scratch();
  if (old.use_count() == 1) old->free_on(stream);
  scratch_ = std::move(grown);
  counters_->scratch_allocations.fetch_add(1, std::memory_order_relaxed);
  counters_->scratch_bytes.fetch_add(scratch_->bytes(), std::memory_order_relaxed);
  return scratch_->address();
}

// The block itself lives on while graphs hold it.
std::shared_ptr<DeviceBlock> CudaSession::drop_scratch() {
  counters_->scratch_bytes.fetch_sub(scratch_bytes(), std::memory_order_relaxed);
  return std::move(scratch_);
}

void CudaSession::retain_in(CUgraph graph) {
  const Driver& driver = list_->context().driver;
  auto* held = new Held{state_, scratch_, pinned_, code_};
  CUuserObject object = nullptr;
  CUresult result =
      driver.UserObjectCreate(&object, held, release_held, 1, kUserObjectNoDestructorSync);
  if (result != kCudaSuccess) {
    delete held;
    check(driver, result, "cuUserObjectCreate");
  }
  result = driver.GraphRetainUserObject(graph, object, 1, kGraphUserObjectMove);
  if (result != kCudaSuccess) {
    driver.UserObjectRelease(object, 1);  // and with it, what is held
    check(driver, result, "cuGraphRetainUserObject");
  }
}

attnk::FaultState* CudaSession::faults() const {
  return reinterpret_cast<attnk::FaultState*>(state_->address());
}

uint32_t* CudaSession::counters() const {
  return reinterpret_cast<uint32_t*>(state_->address() + kStateBytes);
}

}  // namespace attn::cuda
