// What the library costs beyond the work itself: the smallest prepared execute there is (one batch
// row, one head of 64, one token, one key), and opening the library.
//
// The library is opened at run time, as its users do. Opening can be timed only once a process
// (the library never unloads), so that benchmark starts this program again for each sample.
#include <benchmark/benchmark.h>
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "attn_c.h"

namespace {

constexpr char kLoadOnce[] = "--load-once";
constexpr int64_t kHeadSize = 64;

using GetApi = attn_status (*)(uint32_t, const attn_api**, attn_error*);

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "host_overhead: %s\n", what.c_str());
  std::exit(1);
}

const attn_api& open_library() {
  void* library = dlopen(ATTN_BENCH_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) fail(dlerror());
  const auto get_api = reinterpret_cast<GetApi>(dlsym(library, "attn_get_api"));
  const attn_api* api = nullptr;
  attn_error error = ATTN_ERROR_INIT;
  if (get_api == nullptr || get_api(ATTN_ABI_VERSION, &api, &error) != ATTN_OK) fail(error.message);
  return *api;
}

const attn_api& api() {
  static const attn_api& table = open_library();
  return table;
}

void check(attn_status status, const attn_error& error) {
  if (status != ATTN_OK) fail(error.message);
}

attn_tensor tensor(void* data, uint8_t code, uint8_t bits, const std::vector<int64_t>& shape) {
  attn_tensor out = ATTN_TENSOR_INIT;
  out.device_type = ATTN_DEVICE_CPU;
  out.dtype = {code, bits, 1};
  out.ndim = static_cast<int32_t>(shape.size());
  out.data = data;
  int64_t stride = 1;
  for (size_t axis = shape.size(); axis-- > 0; stride *= shape[axis]) {
    out.shape[axis] = shape[axis];
    out.strides[axis] = stride;
  }
  return out;
}

// The node and its memory: query, key and value of one token, no past.
struct Fixture {
  Fixture() {
    attn_error error = ATTN_ERROR_INIT;
    attn_context_desc context_desc = ATTN_CONTEXT_DESC_INIT;
    context_desc.thread_count = 1;
    check(api().context_create(&context_desc, &context, &error), error);
    const attn_attribute attributes[] = {{"num_heads", ATTN_ATTRIBUTE_INT, 0, 1, 0.0, nullptr},
                                         {"kv_num_heads", ATTN_ATTRIBUTE_INT, 0, 1, 0.0, nullptr}};
    attn_op_desc op_desc = ATTN_OP_DESC_INIT;
    op_desc.domain = "com.microsoft";
    op_desc.type = "GroupQueryAttention";
    op_desc.version = 1;
    op_desc.attributes = attributes;
    op_desc.attribute_count = 2;
    check(api().op_create(context, &op_desc, &op, &error), error);
    check(api().session_create(context, nullptr, &session, &error), error);
    check(api().binding_create(op, session, &binding, &error), error);
    check(api().binding_set_tensors(binding, inputs, 5, outputs, 1, &error), error);
    check(api().binding_prepare(binding, nullptr, &error), error);
    attn_prepare_desc prepare = ATTN_PREPARE_DESC_INIT;
    prepare.inputs = inputs;
    prepare.input_count = 5;
    prepare.outputs = outputs;
    prepare.output_count = 1;
    check(api().op_prepare(op, &prepare, &plan, &error), error);
  }
  ~Fixture() {
    api().plan_release(plan);
    api().binding_release(binding);
    api().session_release(session);
    api().op_release(op);
    api().context_release(context);
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  std::vector<float> data = std::vector<float>(4 * kHeadSize, 0.5f);
  int32_t seqlens_k = 0;
  int32_t total = 1;
  attn_tensor query = tensor(&data[0], ATTN_DTYPE_FLOAT, 32, {1, 1, kHeadSize});
  attn_tensor key = tensor(&data[kHeadSize], ATTN_DTYPE_FLOAT, 32, {1, 1, kHeadSize});
  attn_tensor value = tensor(&data[2 * kHeadSize], ATTN_DTYPE_FLOAT, 32, {1, 1, kHeadSize});
  attn_tensor output = tensor(&data[3 * kHeadSize], ATTN_DTYPE_FLOAT, 32, {1, 1, kHeadSize});
  attn_tensor lengths = tensor(&seqlens_k, ATTN_DTYPE_INT, 32, {1});
  attn_tensor total_length = tensor(&total, ATTN_DTYPE_INT, 32, {});
  attn_arg inputs[5] = {
      {0, 0, &query}, {1, 0, &key}, {2, 0, &value}, {5, 0, &lengths}, {6, 0, &total_length}};
  attn_arg outputs[1] = {{0, 0, &output}};

  attn_context* context = nullptr;
  attn_op* op = nullptr;
  attn_session* session = nullptr;
  attn_plan* plan = nullptr;
  attn_binding* binding = nullptr;
};

void plan_execute(benchmark::State& state) {
  Fixture fixture;
  attn_error error = ATTN_ERROR_INIT;
  for (auto _ : state) {
    check(api().plan_execute(fixture.plan, fixture.session, fixture.inputs, 5, fixture.outputs, 1,
                             nullptr, &error),
          error);
  }
}
BENCHMARK(plan_execute);

void binding_execute(benchmark::State& state) {
  Fixture fixture;
  attn_error error = ATTN_ERROR_INIT;
  for (auto _ : state) {
    check(api().binding_execute(fixture.binding, nullptr, &error), error);
  }
}
BENCHMARK(binding_execute);

// One fresh process a sample: dlopen until the table is there.
void library_load(benchmark::State& state) {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  if (length <= 0) fail("cannot find this program");
  self[length] = '\0';
  const std::string command = std::string("'") + self + "' " + kLoadOnce;
  for (auto _ : state) {
    FILE* child = popen(command.c_str(), "r");
    double seconds = 0;
    if (child == nullptr || std::fscanf(child, "%lf", &seconds) != 1 || pclose(child) != 0) {
      fail("the child that loads the library failed");
    }
    state.SetIterationTime(seconds);
  }
}
BENCHMARK(library_load)->UseManualTime()->Iterations(20)->Unit(benchmark::kMicrosecond);

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], kLoadOnce) == 0) {
    const auto begin = std::chrono::steady_clock::now();
    open_library();
    const auto end = std::chrono::steady_clock::now();
    std::printf("%.9f\n", std::chrono::duration<double>(end - begin).count());
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
