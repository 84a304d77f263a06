// What the API layer does with a back end: exceptions, BUSY, capture facts, faults.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>

#include "api/session.h"
#include "api_fake_backend.h"
#include "api_fixture.h"

namespace attn::test {
namespace {

class ApiBackendTest : public ::testing::Test {
 protected:
  void SetUp() override { open(ATTN_DEVICE_CPU); }
  void TearDown() override { close(); }

  void open(int32_t device_type) {
    context = make_fake_context(&backend, device_type);
    op = make_gqa(context, "layer3");
    attn_session_desc desc = ATTN_SESSION_DESC_INIT;
    desc.label = "model0";
    ASSERT_OK(attn_session_create(context, &desc, &session, &error));
  }
  void close() {
    attn_session_release(session);
    attn_op_release(op);
    attn_context_release(context);
  }

  FakeBackend* backend = nullptr;
  attn_context* context = nullptr;
  attn_op* op = nullptr;
  attn_session* session = nullptr;
};

TEST_F(ApiBackendTest, ExceptionsOfTheBackEndStopAtTheBoundary) {
  DecodeStep step;
  attn_plan* plan = nullptr;
  ASSERT_OK(step.prepare(op, &plan, &error));
  backend->on_execute = [](const Lowering&) { throw std::bad_alloc(); };
  EXPECT_REFUSED(step.execute(plan, session, &error), ATTN_OUT_OF_MEMORY,
                 "GroupQueryAttention 'layer3': not enough host memory");
  backend->on_execute = [](const Lowering&) { throw std::runtime_error("broken"); };
  EXPECT_REFUSED(step.execute(plan, session, &error), ATTN_INTERNAL,
                 "GroupQueryAttention 'layer3': broken");
  backend->on_execute = [](const Lowering&) { throw 1; };
  EXPECT_REFUSED(step.execute(plan, session, &error), ATTN_INTERNAL, "unknown exception");
  backend->on_execute = [](const Lowering&) { throw_error(ATTN_DEVICE, "lost"); };
  EXPECT_REFUSED(step.execute(plan, session, &error), ATTN_DEVICE, "lost");
  // The session was given back each time.
  backend->on_execute = nullptr;
  ASSERT_OK(step.execute(plan, session, &error));
  EXPECT_EQ(api_stats(context).executions, 1u) << "failures are no executions";
  attn_plan_release(plan);
}

TEST_F(ApiBackendTest, RefusalsAreTheSameInQueryAndPrepare) {
  backend->refusal = "no engine takes head size 8";
  DecodeStep step;
  attn_plan* plan = nullptr;
  EXPECT_REFUSED(step.prepare(op, &plan, &error), ATTN_UNSUPPORTED,
                 "GroupQueryAttention 'layer3': no engine takes head size 8");
  attn_support support = ATTN_SUPPORT_INIT;
  const attn_query_desc query = step.query_desc();
  ASSERT_OK(attn_op_query(op, &query, &support, &error));
  EXPECT_EQ(support.supported, 0u);
  EXPECT_EQ(support.status, ATTN_UNSUPPORTED);
  EXPECT_STREQ(support.reason, "no engine takes head size 8");
  EXPECT_EQ(api_stats(context).plans_created, 0u);
  EXPECT_EQ(backend->plans, 0);
}

// One call sits inside the back end while others try: BUSY, and nothing else happens.
TEST_F(ApiBackendTest, SessionsAndBindingsAreOneAtATime) {
  DecodeStep step;
  attn_plan* plan = nullptr;
  attn_binding* binding = nullptr;
  ASSERT_OK(step.prepare(op, &plan, &error));
  ASSERT_OK(attn_binding_create(op, session, &binding, &error));
  ASSERT_OK(step.set(binding, &error));
  ASSERT_OK(attn_binding_prepare(binding, nullptr, &error));

  std::mutex mutex;
  std::condition_variable changed;
  bool inside = false, leave = false;
  backend->on_execute = [&](const Lowering&) {
    std::unique_lock lock(mutex);
    inside = true;
    changed.notify_all();
    changed.wait(lock, [&] { return leave; });
  };
  std::thread worker([&] { ASSERT_OK(attn_binding_execute(binding, nullptr, &error)); });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return inside; });
  }
  EXPECT_REFUSED(attn_binding_execute(binding, nullptr, &error), ATTN_BUSY,
                 "binding is in use by another call");
  EXPECT_REFUSED(attn_binding_set_input(binding, 0, &step.t_q, &error), ATTN_BUSY, "binding");
  EXPECT_REFUSED(step.set(binding, &error), ATTN_BUSY, "binding");
  EXPECT_REFUSED(attn_binding_prepare(binding, nullptr, &error), ATTN_BUSY, "binding");
  EXPECT_REFUSED(step.execute(plan, session, &error), ATTN_BUSY,
                 "session 'model0' is in use by another call");
  EXPECT_REFUSED(attn_session_clear_faults(session, nullptr, &error), ATTN_BUSY, "session");
  attn_fault_info info = ATTN_FAULT_INFO_INIT;
  ASSERT_OK(attn_session_poll_faults(session, &info, &error));  // any thread may
  ASSERT_OK(attn_context_trim(context, &error));                // leaves what is in use alone
  EXPECT_EQ(static_cast<FakeSession&>(*session->backend).trims, 0);
  attn_session* other = make_api_session(context);
  backend->on_execute = nullptr;
  ASSERT_OK(step.execute(plan, other, &error));
  attn_session_release(other);
  {
    const std::lock_guard lock(mutex);
    leave = true;
    changed.notify_all();
  }
  worker.join();
  ASSERT_OK(attn_binding_execute(binding, nullptr, &error));
  ASSERT_OK(attn_context_trim(context, &error));
  EXPECT_EQ(static_cast<FakeSession&>(*session->backend).trims, 1);
  attn_binding_release(binding);
  attn_plan_release(plan);
}

TEST_F(ApiBackendTest, FaultsInWords) {
  attn_fault_info info = ATTN_FAULT_INFO_INIT;
  ASSERT_OK(attn_session_poll_faults(session, &info, &error));
  EXPECT_EQ(info.bits, ATTN_FAULT_POSITION | ATTN_FAULT_BLOCK);
  size_t needed = 0;
  char text[512];
  ASSERT_OK(attn_fault_text(info.bits, text, sizeof text, &needed, &error));
  EXPECT_STREQ(info.text, text);
  EXPECT_REFUSED(attn_session_clear_faults(session, &error, &error), ATTN_INVALID_ARGUMENT,
                 "the CPU runs at once and has no streams");
  ASSERT_OK(attn_session_clear_faults(session, nullptr, &error));
  ASSERT_OK(attn_session_poll_faults(session, &info, &error));
  EXPECT_EQ(info.bits, 0u);
  EXPECT_STREQ(info.text, "");
}

TEST_F(ApiBackendTest, RequestsAndLaunchesArriveWhole) {
  DecodeStep step;
  attn_prepare_desc desc = step.prepare_desc();
  desc.engine = "fake";
  desc.flags = ATTN_PREPARE_ALLOW_TF32 | ATTN_PREPARE_CHECK_ON_HOST;
  attn_plan* plan = nullptr;
  ASSERT_OK(attn_op_prepare(op, &desc, &plan, &error));
  EXPECT_EQ(backend->last_request.engine, "fake");
  EXPECT_TRUE(backend->last_request.allow_tf32);
  EXPECT_TRUE(backend->last_request.check_on_host);
  EXPECT_FALSE(backend->last_request.batch_invariant);
  alignas(256) unsigned char workspace[512];
  attn_execute_desc run = ATTN_EXECUTE_DESC_INIT;
  run.flags = ATTN_EXECUTE_BAKE_HOST_VALUES;
  run.workspace = workspace;
  run.workspace_bytes = sizeof workspace;
  ASSERT_OK(step.execute(plan, session, &error, &run));
  EXPECT_EQ(backend->last_launch.workspace, workspace);
  EXPECT_EQ(backend->last_launch.workspace_bytes, sizeof workspace);
  EXPECT_EQ(backend->last_launch.flags, ATTN_EXECUTE_BAKE_HOST_VALUES);
  attn_plan_release(plan);
}

TEST_F(ApiBackendTest, CaptureFactsOfADevice) {
  close();
  open(ATTN_DEVICE_CUDA);
  backend->capturable = true;
  DecodeStep step;
  for (attn_tensor* tensor :
       {&step.t_q, &step.t_k, &step.t_v, &step.t_kc, &step.t_vc, &step.t_seqlens, &step.t_y}) {
    tensor->device_type = ATTN_DEVICE_CUDA;
  }
  attn_support support = ATTN_SUPPORT_INIT;
  const attn_query_desc query = step.query_desc();
  ASSERT_OK(attn_op_query(op, &query, &support, &error));
  EXPECT_EQ(support.supported, 1u) << support.reason;
  EXPECT_EQ(support.capture_flags, ATTN_CAPTURE_SUPPORTED | ATTN_CAPTURE_NEEDS_PREPARE |
                                       ATTN_CAPTURE_POINTERS_BAKED |
                                       ATTN_CAPTURE_LENGTHS_ON_DEVICE);
  attn_plan* plan = nullptr;
  ASSERT_OK(step.prepare(op, &plan, &error));
  attn_plan_info info = ATTN_PLAN_INFO_INIT;
  ASSERT_OK(attn_plan_get_info(plan, &info, &error));
  EXPECT_EQ(info.capture_flags, ATTN_CAPTURE_SUPPORTED | ATTN_CAPTURE_POINTERS_BAKED |
                                    ATTN_CAPTURE_LENGTHS_ON_DEVICE |
                                    ATTN_CAPTURE_WORKSPACE_MUST_PERSIST);
  EXPECT_EQ(info.workspace_bytes, 512u);
  EXPECT_EQ(info.workspace_alignment, 256u);
  EXPECT_EQ(info.baked_slot_count, 1u) << "total_sequence_length lies on the host";
  EXPECT_EQ(info.baked_slots[0], 6u);
  EXPECT_STREQ(info.reason, "pretended");
  attn_execute_desc run = ATTN_EXECUTE_DESC_INIT;
  run.stream = &run;
  ASSERT_OK(step.execute(plan, session, &error, &run));
  EXPECT_EQ(backend->last_launch.stream, &run);

  // While the stream captures nothing is planned: CAPTURE, with what differs.
  backend->capturing = true;
  ASSERT_OK(step.execute(plan, session, &error, &run));
  DecodeStep larger(3);
  for (attn_tensor* tensor : {&larger.t_q, &larger.t_k, &larger.t_v, &larger.t_kc, &larger.t_vc,
                              &larger.t_seqlens, &larger.t_y}) {
    tensor->device_type = ATTN_DEVICE_CUDA;
  }
  EXPECT_REFUSED(larger.execute(plan, session, &error, &run), ATTN_CAPTURE,
                 "batch 3 exceeds the plan's 1");
  attn_binding* binding = nullptr;
  ASSERT_OK(attn_binding_create(op, session, &binding, &error));
  ASSERT_OK(larger.set(binding, &error));
  run.flags = ATTN_EXECUTE_PREPARE;
  EXPECT_REFUSED(attn_binding_execute(binding, &run, &error), ATTN_CAPTURE, "has no plan");
  EXPECT_EQ(api_stats(context).plans_created, 1u);
  backend->capturing = false;
  ASSERT_OK(attn_binding_execute(binding, &run, &error));
  attn_binding_release(binding);
  attn_plan_release(plan);

  attn_tensor inferred = ATTN_TENSOR_INIT;
  ASSERT_OK(attn_op_infer_output(op, step.inputs.data(), 7, 0, &inferred, nullptr, &error));
  EXPECT_EQ(inferred.device_type, ATTN_DEVICE_CUDA);
  step.t_q.device_type = ATTN_DEVICE_CPU;
  EXPECT_REFUSED(step.prepare(op, &plan, &error), ATTN_INVALID_ARGUMENT,
                 "query: expected device memory; got host memory");
}

}  // namespace
}  // namespace attn::test
