// A back end that plans and runs nothing, counts what it is asked, and can wait, throw and pretend
// to be a GPU.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/context.h"
#include "core/backend.h"

namespace attn::test {

class FakePlan final : public BackendPlan {
 public:
  FakePlan(size_t bytes, bool capturable) : bytes_(bytes), capturable_(capturable) {}
  size_t workspace_bytes() const override { return bytes_; }
  std::vector<StageReport> report() const override {
    StageReport stage;
    stage.stage = "attention";
    stage.engine = "fake";
    return {stage};
  }
  bool capturable() const override { return capturable_; }
  std::string capture_reason() const override { return "pretended"; }

 private:
  size_t bytes_;
  bool capturable_;
};

class FakeSession final : public BackendSession {
 public:
  FaultReport poll_faults() override {
    FaultReport report;
    report.bits = faults;
    return report;
  }
  void clear_faults(void*) override { faults = 0; }
  uint64_t scratch_bytes() const override { return 0; }
  void trim() override { ++trims; }
  uint32_t faults = ATTN_FAULT_POSITION | ATTN_FAULT_BLOCK;
  int trims = 0;
};

class FakeBackend final : public Backend {
 public:
  bool supports(const Lowering&, const PlanRequest&, std::string* reason) override {
    *reason = refusal;
    return refusal.empty();
  }
  std::shared_ptr<const BackendPlan> plan(const Lowering&, const ShapeRange&,
                                          const PlanRequest& request) override {
    ++plans;
    last_request = request;
    return std::make_shared<FakePlan>(512, capturable);
  }
  std::unique_ptr<BackendSession> create_session() override {
    return std::make_unique<FakeSession>();
  }
  void execute(const BackendPlan&, const Lowering& call, BackendSession&,
               const Launch& launch) override {
    last_launch = launch;
    if (on_execute) on_execute(call);
  }
  std::vector<std::string> engine_names() const override { return {"fake"}; }
  bool is_capturing(void* stream) const override { return stream != nullptr && capturing; }
  HostHelp* host_help() override { return help; }

  std::string refusal;
  bool capturable = false;
  bool capturing = false;
  std::atomic<int> plans{0};
  PlanRequest last_request;
  Launch last_launch;
  std::function<void(const Lowering&)> on_execute;
  HostHelp* help = nullptr;  // the test's
};

// A context over a fake back end; `*backend` is the context's.
inline attn_context* make_fake_context(FakeBackend** backend,
                                       int32_t device_type = ATTN_DEVICE_CPU) {
  auto* context = new attn_context;
  auto owned = std::make_unique<FakeBackend>();
  *backend = owned.get();
  context->backend = std::move(owned);
  context->facts.identity = {device_type, 0};
  context->facts.can_capture = device_type == ATTN_DEVICE_CUDA;
  context->facts.workspace_alignment = 256;
  context->facts.engines = "fake";
  return context;
}

}  // namespace attn::test
