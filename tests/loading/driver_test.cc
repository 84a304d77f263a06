// A driver that cannot be used: what a caller is told, and that nothing is left behind.
#include <gtest/gtest.h>

#include "cuda/driver_api.h"
#include "loading/fakes.h"

namespace attn::test {
namespace {

struct Name {
  const char* text;
};

class DriverLoading : public testing::Test {
 protected:
  DriverLoading() { reset_fakes(); }
  ~DriverLoading() override { EXPECT_EQ(driver().balance(), 0); }

  Outcome open(const CudaOptions& options) {
    Handle<attn_context> context;
    return create_cuda_context(context, options);
  }
  void expect_unavailable(const Outcome& outcome, std::initializer_list<const char*> words) {
    EXPECT_EQ(outcome.status, ATTN_UNAVAILABLE) << outcome.message;
    for (const char* word : words) {
      EXPECT_NE(outcome.message.find(word), std::string::npos)
          << "'" << word << "' is missing in: " << outcome.message;
    }
  }
};

TEST_F(DriverLoading, OpensAtTheGivenPath) {
  const Outcome outcome = open({});
  EXPECT_TRUE(outcome.ok()) << outcome.message;
  EXPECT_LE(driver().newest_version_asked, 12000) << "a driver of CUDA 12.0 would not know it";
}

TEST_F(DriverLoading, MissingFile) {
  CudaOptions options;
  options.driver_path = "/nowhere/libcuda.so.1";
  expect_unavailable(open(options), {"tried driver_path: /nowhere/libcuda.so.1"});
}

TEST_F(DriverLoading, NotADriver) {
  CudaOptions options;
  options.driver_path = ATTN_FAKE_NVRTC;
  expect_unavailable(open(options), {ATTN_FAKE_NVRTC, "is no CUDA driver", "cuInit"});
}

// A driver of CUDA 11 lacks the query for versioned functions; its version decides the message.
TEST_F(DriverLoading, LacksTheQueryForFunctions) {
  CudaOptions options;
  options.driver_path = ATTN_FAKE_OLD_DRIVER;
  expect_unavailable(open(options), {ATTN_FAKE_OLD_DRIVER, "12.0 or later", "update the NVIDIA"});
}

TEST_F(DriverLoading, OldVersionIsNotInitialised) {
  driver().version = 11080;
  expect_unavailable(open({}), {"CUDA 11.8", "12.0 or later", "update the NVIDIA driver"});
  for (int i = 0; i < driver().call_count; ++i) EXPECT_STRNE(driver().calls[i], "cuInit");
}

TEST_F(DriverLoading, OldestAndNewerDriversServe) {
  for (const int version : {12000, 12080, 13000, 14020}) {
    driver().version = version;
    const Outcome outcome = open({});
    EXPECT_TRUE(outcome.ok()) << version << ": " << outcome.message;
  }
}

TEST_F(DriverLoading, NoDevice) {
  driver().fail_call = "cuInit";
  driver().fail_code = 100;
  expect_unavailable(open({}), {"cuInit", "100", "no CUDA device", "words of the fake"});
}

TEST_F(DriverLoading, DoesNotStart) {
  driver().fail_call = "cuInit";
  driver().fail_code = 803;
  expect_unavailable(open({}), {"cuInit", "803", "words of the fake"});
  // What failed is tried again, on the same path too.
  const CudaOptions options;
  driver().forget_calls();
  expect_unavailable(open(options), {"803"});
  driver().fail_call = nullptr;
  EXPECT_TRUE(open(options).ok());
}

TEST_F(DriverLoading, TellsNoVersion) {
  driver().fail_call = "cuDriverGetVersion";
  driver().fail_code = 3;
  expect_unavailable(open({}), {"cuDriverGetVersion", "code 3"});
}

TEST_F(DriverLoading, DeviceNumberBeyondTheLast) {
  for (const int device : {2, 100, -1}) {
    CudaOptions options;
    options.device = device;
    expect_unavailable(open(options), {std::to_string(device).c_str(), "2 CUDA devices"});
  }
  driver().devices = 0;
  expect_unavailable(open({}), {"0 CUDA devices"});
}

TEST_F(DriverLoading, DeviceTooOld) {
  driver().major = 7;
  driver().minor = 5;
  expect_unavailable(open({}), {"sm_75", "sm_80"});
}

// Every function of the list in turn.
class MissingFunction : public DriverLoading, public testing::WithParamInterface<Name> {};

TEST_P(MissingFunction, IsNamed) {
  driver().missing = GetParam().text;
  expect_unavailable(open({}), {"lacks", GetParam().text, "CUDA 12.4"});
}

const Name kFunctions[] = {
#define X(name, symbol, version, parameters) {symbol},
    ATTN_DRIVER_FUNCTIONS(X)
#undef X
};

INSTANTIATE_TEST_SUITE_P(Driver, MissingFunction, testing::ValuesIn(kFunctions),
                         [](const auto& one) { return std::string(one.param.text); });

}  // namespace
}  // namespace attn::test
