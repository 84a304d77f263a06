// The library as a plugin: opened by dlopen, closed and opened again, forked, opened twice as
// two files, left alive at exit.
// Nothing here is linked to it.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <thread>

#include "attn_c.h"

namespace {

int thread_count() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<int>(std::distance(begin(tasks), end(tasks)));
}

void* open_library() {
  void* library = dlopen(ATTN_TEST_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return library;
}

const attn_api* table_of(void* library) {
  using GetApi = decltype(&attn_get_api);
  const auto get_api = reinterpret_cast<GetApi>(dlsym(library, "attn_get_api"));
  const attn_api* api = nullptr;
  EXPECT_NE(get_api, nullptr);
  if (get_api == nullptr) return nullptr;
  EXPECT_EQ(get_api(ATTN_ABI_VERSION, &api, nullptr), ATTN_OK);
  return api;
}

// One decode step of enough work that threads may be started for it.
struct Step {
  static constexpr int kBatch = 4, kHeads = 8, kHeadSize = 64, kCapacity = 256;
  static constexpr int kRow = kBatch * kHeads * kHeadSize;

  explicit Step(const attn_api* table) : api(table) {
    attn_context_desc desc = ATTN_CONTEXT_DESC_INIT;
    desc.flags = ATTN_CONTEXT_IGNORE_ENVIRONMENT;
    desc.thread_count = 2;
    attn_error error = ATTN_ERROR_INIT;
    EXPECT_EQ(api->context_create(&desc, &context, &error), ATTN_OK) << error.message;
  }

  void create() {
    attn_attribute attributes[2] = {};
    attributes[0].name = "num_heads";
    attributes[1].name = "kv_num_heads";
    attributes[0].type = attributes[1].type = ATTN_ATTRIBUTE_INT;
    attributes[0].i = attributes[1].i = kHeads;
    attn_op_desc desc = ATTN_OP_DESC_INIT;
    desc.domain = "com.microsoft";
    desc.type = "GroupQueryAttention";
    desc.version = 1;
    desc.attributes = attributes;
    desc.attribute_count = 2;
    attn_error error = ATTN_ERROR_INIT;
    ASSERT_EQ(api->op_create(context, &desc, &op, &error), ATTN_OK) << error.message;
    ASSERT_EQ(api->session_create(context, nullptr, &session, &error), ATTN_OK) << error.message;
    ASSERT_EQ(api->binding_create(op, session, &binding, &error), ATTN_OK) << error.message;
    for (float& value : q) value = 0.25f;
    for (float& value : k) value = 0.5f;
    for (float& value : v) value = 3.0f;
    for (float& value : values) value = 3.0f;
    for (int32_t& value : seqlens) value = kCapacity - 1;
    bind(true, 0, {kBatch, 1, kHeads * kHeadSize}, q);
    bind(true, 1, {kBatch, 1, kHeads * kHeadSize}, k);
    bind(true, 2, {kBatch, 1, kHeads * kHeadSize}, v);
    bind(true, 3, {kBatch, kHeads, kCapacity, kHeadSize}, keys);
    bind(true, 4, {kBatch, kHeads, kCapacity, kHeadSize}, values);
    bind(true, 5, {kBatch}, seqlens);
    bind(true, 6, {}, &total);
    bind(false, 0, {kBatch, 1, kHeads * kHeadSize}, y);
    bind(false, 1, {kBatch, kHeads, kCapacity, kHeadSize}, keys);
    bind(false, 2, {kBatch, kHeads, kCapacity, kHeadSize}, values);
  }

  void bind(bool input, uint32_t slot, std::initializer_list<int64_t> shape, void* data) {
    attn_tensor tensor = ATTN_TENSOR_INIT;
    tensor.device_type = ATTN_DEVICE_CPU;
    const bool integers = input && slot >= 5;
    tensor.dtype = {static_cast<uint8_t>(integers ? ATTN_DTYPE_INT : ATTN_DTYPE_FLOAT), 32, 1};
    for (const int64_t size : shape) tensor.shape[tensor.ndim++] = size;
    int64_t stride = 1;
    for (int32_t axis = tensor.ndim - 1; axis >= 0; --axis) {
      tensor.strides[axis] = stride;
      stride *= tensor.shape[axis];
    }
    tensor.data = data;
    attn_error error = ATTN_ERROR_INIT;
    const attn_status status = input ? api->binding_set_input(binding, slot, &tensor, &error)
                                     : api->binding_set_output(binding, slot, &tensor, &error);
    ASSERT_EQ(status, ATTN_OK) << error.message;
  }

  bool run() {
    attn_execute_desc desc = ATTN_EXECUTE_DESC_INIT;
    desc.flags = ATTN_EXECUTE_PREPARE;
    for (float& value : y) value = -1;
    if (api->binding_execute(binding, &desc, nullptr) != ATTN_OK) return false;
    for (const float value : y) {
      if (value < 2.999f || value > 3.001f) return false;
    }
    return true;
  }

  void release() {
    api->binding_release(binding);
    api->session_release(session);
    api->op_release(op);
    api->context_release(context);
  }

  const attn_api* api;
  attn_context* context = nullptr;
  attn_op* op = nullptr;
  attn_session* session = nullptr;
  attn_binding* binding = nullptr;
  float q[kRow], k[kRow], v[kRow], y[kRow];
  float keys[kRow * kCapacity] = {}, values[kRow * kCapacity];
  int32_t seqlens[kBatch];
  int32_t total = kCapacity;
};

// Runs `body` in a child and gives its exit status, 255 for an end by a signal.
template <class Body>
int in_child(const Body& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) body();
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

// First of all tests: the library is not in the process yet.
TEST(AbiLoadingTest, A_OpeningStartsNothing) {
  ASSERT_EQ(thread_count(), 1);
  void* library = open_library();
  ASSERT_NE(library, nullptr);
  EXPECT_EQ(thread_count(), 1) << "a thread was started by loading";
  const auto step = std::make_unique<Step>(table_of(library));
  EXPECT_EQ(thread_count(), 1) << "a thread was started by a context";
  step->api->context_release(step->context);
  dlclose(library);
}

TEST(AbiLoadingTest, OpenTwiceCloseAndOpenAgain) {
  void* first = open_library();
  void* second = open_library();
  ASSERT_EQ(first, second);
  const auto step = std::make_unique<Step>(table_of(first));
  step->create();
  EXPECT_TRUE(step->run());
  dlclose(second);
  EXPECT_TRUE(step->run());
  dlclose(first);
  EXPECT_TRUE(step->run()) << "-z nodelete keeps the code";
  void* again = open_library();
  EXPECT_EQ(table_of(again), step->api) << "the same library, the same table";
  EXPECT_TRUE(step->run());
  step->release();
  dlclose(again);
}

TEST(AbiLoadingTest, AForkedChildUsesItsOwnAndItsParentsContext) {
  void* library = open_library();
  const auto parent = std::make_unique<Step>(table_of(library));
  parent->create();
  ASSERT_TRUE(parent->run());  // threads of the parent, which the child does not have
  const int status = in_child([library, &parent] {
    alarm(60);  // a child that waits for threads that are not there ends with a signal
    const auto step = std::make_unique<Step>(table_of(library));
    step->create();
    const bool right = step->run() && parent->run();
    step->release();
    std::_Exit(right ? 0 : 1);
  });
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(parent->run());
  parent->release();
  dlclose(library);
}

// As two packages bring it: the same file at another place is another library, with state of its
// own. Neither sees the other's symbols, and both run at once.
TEST(AbiLoadingTest, TwoCopiesInOneProcess) {
  namespace fs = std::filesystem;
  const fs::path copy = fs::path(ATTN_TEST_BINARY_DIR) / "copy_of_the_library.so";
  fs::copy_file(ATTN_TEST_LIBRARY, copy, fs::copy_options::overwrite_existing);
  void* first = open_library();
  void* second = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(second, nullptr) << dlerror();
  ASSERT_NE(first, second);
  const auto one = std::make_unique<Step>(table_of(first));
  const auto other = std::make_unique<Step>(table_of(second));
  ASSERT_NE(one->api, other->api);
  ASSERT_NE(one->api->binding_execute, other->api->binding_execute);
  one->create();
  other->create();
  std::atomic<int> right = 0;
  const auto run_often = [&right](Step& step) {
    for (int i = 0; i < 50; ++i) right += step.run() ? 1 : 0;
  };
  std::thread thread([&] { run_often(*other); });
  run_often(*one);
  thread.join();
  EXPECT_EQ(right, 100);
  // Each has seen its own executions alone.
  for (const Step* step : {one.get(), other.get()}) {
    attn_context_stats stats = ATTN_CONTEXT_STATS_INIT;
    ASSERT_EQ(step->api->context_get_stats(step->context, &stats, nullptr), ATTN_OK);
    EXPECT_EQ(stats.executions, 50u);
  }
  one->release();
  dlclose(first);
  EXPECT_TRUE(other->run());
  other->release();
  dlclose(second);
  fs::remove(copy);
}

TEST(AbiLoadingTest, ExitWithLiveObjects) {
  const int status = in_child([] {
    alarm(60);
    const auto step = new Step(table_of(open_library()));
    step->create();
    std::exit(step->run() ? 7 : 1);  // static destructors run, threads still wait for work
  });
  EXPECT_EQ(status, 7);
}

}  // namespace
