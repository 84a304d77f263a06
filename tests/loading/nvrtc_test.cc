// A compiler library that cannot be used, or that fails: what a caller is told. The fake device is
// an sm_86, for which no ready kernel exists, so that every kernel must be compiled.
#include <gtest/gtest.h>

#include <filesystem>
#include <initializer_list>
#include <string>

#include "loading/fakes.h"

namespace attn::test {
namespace {

class NvrtcLoading : public testing::Test {
 protected:
  NvrtcLoading() { reset_fakes(); }
  ~NvrtcLoading() override {
    EXPECT_EQ(driver().balance(), 0);
    EXPECT_EQ(nvrtc().programs, 0);
  }

  // A session's creation compiles the first kernel.
  Outcome compile_one(const CudaOptions& options) {
    Handle<attn_context> context;
    const Outcome outcome = create_cuda_context(context, options);
    if (!outcome.ok()) return outcome;
    Handle<attn_session> session;
    return create_session(session, context.get());
  }
  void expect(const Outcome& outcome, attn_status status,
              std::initializer_list<const char*> words) {
    EXPECT_EQ(outcome.status, status) << outcome.message;
    for (const char* word : words) {
      EXPECT_NE(outcome.message.find(word), std::string::npos)
          << "'" << word << "' is missing in: " << outcome.message;
    }
  }
};

TEST_F(NvrtcLoading, CompilesForTheDevice) {
  Step step(CudaOptions{});
  ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
  EXPECT_GT(nvrtc().compiles, 0);
  const std::string options = nvrtc().last_options;
  for (const char* option : {"--gpu-architecture=sm_86", "--modify-stack-limit=false", "--no-cache",
                             "-default-device", "-DATTN_TYPE="}) {
    EXPECT_NE(options.find(option), std::string::npos) << options;
  }
  EXPECT_NE(step.describe().find("kernel from NVRTC"), std::string::npos) << step.describe();
}

// One query row: the KV update, the session's, the decode engine's and the generic one's.
TEST_F(NvrtcLoading, NoKernelThatNoCallOfThePlanComesTo) {
  Step step(CudaOptions{});
  ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
  const std::string text = step.describe();
  EXPECT_NE(text.find("calls of at most 1 query rows are taken by split-decode"), std::string::npos)
      << text;
  EXPECT_EQ(nvrtc().compiles, 4);
}

TEST_F(NvrtcLoading, EachKernelIsCompiledOnce) {
  const CudaOptions options;
  Handle<attn_context> context;
  ASSERT_TRUE(create_cuda_context(context, options).ok());
  for (int i = 0; i < 3; ++i) {
    Handle<attn_session> session;
    ASSERT_TRUE(create_session(session, context.get()).ok());
  }
  EXPECT_EQ(nvrtc().compiles, 1);
}

TEST_F(NvrtcLoading, MissingFile) {
  CudaOptions options;
  options.nvrtc_path = "/nowhere/libnvrtc.so.13";
  expect(compile_one(options), ATTN_UNAVAILABLE,
         {"tried nvrtc_path: /nowhere/libnvrtc.so.13", "session/session.cu", "sm_86"});
}

TEST_F(NvrtcLoading, LacksAFunction) {
  CudaOptions options;
  options.nvrtc_path = ATTN_FAKE_NVRTC_WITHOUT_CUBIN;
  expect(compile_one(options), ATTN_UNAVAILABLE,
         {"lacks nvrtcGetCUBIN", options.nvrtc_path.c_str()});
}

TEST_F(NvrtcLoading, TooOld) {
  nvrtc().major = 11;
  nvrtc().minor = 8;
  expect(compile_one({}), ATTN_UNAVAILABLE, {"version 11.8", "12.0 or later"});
  // The library is told by its version, not by its name: the same one served now.
  nvrtc().major = 12;
  nvrtc().minor = 0;
  const CudaOptions options;
  EXPECT_TRUE(compile_one(options).ok());
  EXPECT_EQ(std::string(nvrtc().last_options).find("--no-cache"), std::string::npos)
      << "12.0 does not know the option";
}

TEST_F(NvrtcLoading, BuiltinsAreOpenedFromItsFolder) {
  nvrtc().needs_builtins = true;
  // The test's links lie in a folder of their own: the library's real place counts.
  const Outcome outcome = compile_one({});
  EXPECT_TRUE(outcome.ok()) << outcome.message;
}

TEST_F(NvrtcLoading, BuiltinsAreMissing) {
  nvrtc().needs_builtins = true;
  nvrtc().minor = 9;  // there is no such file
  nvrtc().log = "cannot open libnvrtc-builtins.so.13.9";
  expect(compile_one({}), ATTN_COMPILE,
         {"nvrtcCompileProgram", "BUILTIN", "libnvrtc-builtins.so.13.9", "NVRTC 13.9"});
  nvrtc().log = "words of the compiler";
}

TEST_F(NvrtcLoading, EachCallFails) {
  for (const char* call :
       {"nvrtcCreateProgram", "nvrtcCompileProgram", "nvrtcGetCUBINSize", "nvrtcGetCUBIN"}) {
    SCOPED_TRACE(call);
    nvrtc().fail_call = call;
    expect(compile_one({}), ATTN_COMPILE, {call, "NVRTC_ERROR_OF_THE_FAKE", "session/session.cu"});
  }
  nvrtc().fail_call = "nvrtcVersion";
  expect(compile_one({}), ATTN_UNAVAILABLE, {"nvrtcVersion failed with code 6"});
  // The log only helps.
  for (const char* call : {"nvrtcGetProgramLogSize", "nvrtcGetProgramLog"}) {
    nvrtc().fail_call = call;
    EXPECT_TRUE(compile_one({}).ok());
  }
}

TEST_F(NvrtcLoading, CompileErrorHasTheCompilersWords) {
  nvrtc().fail_call = "nvrtcCompileProgram";
  expect(compile_one({}), ATTN_COMPILE,
         {"words of the compiler", "sm_86", "NVRTC 13.5", "nvrtcCompileProgram"});
}

TEST_F(NvrtcLoading, EmptyCubin) {
  nvrtc().empty_cubin = true;
  expect(compile_one({}), ATTN_COMPILE, {"empty cubin", "sm_86", "words of the compiler"});
}

TEST_F(NvrtcLoading, CubinThatTheDriverRefuses) {
  nvrtc().bad_cubin = true;
  expect(compile_one({}), ATTN_DEVICE,
         {"cuLibraryLoadData", "CUDA 12.4", "NVRTC 13.5", "update the NVIDIA driver"});
}

TEST_F(NvrtcLoading, FailureIsTriedAgain) {
  const CudaOptions options;
  Handle<attn_context> context;
  ASSERT_TRUE(create_cuda_context(context, options).ok());
  Handle<attn_session> session;
  nvrtc().fail_call = "nvrtcCompileProgram";
  EXPECT_EQ(create_session(session, context.get()).status, ATTN_COMPILE);
  nvrtc().fail_call = nullptr;
  EXPECT_TRUE(create_session(session, context.get()).ok());
}

TEST_F(NvrtcLoading, DiskCacheSparesTheCompiler) {
  const std::string folder = std::string(ATTN_TEST_BINARY_DIR) + "/tests/loading/cache";
  std::filesystem::remove_all(folder);
  CudaOptions options;
  options.cache_folder = folder;
  {
    Step step(options);
    ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
  }
  EXPECT_GT(nvrtc().compiles, 0);
  nvrtc().compiles = 0;
  {
    Step step(options);
    ASSERT_TRUE(step.outcome.ok()) << step.outcome.message;
    EXPECT_NE(step.describe().find("kernel from disk cache"), std::string::npos);
  }
  EXPECT_EQ(nvrtc().compiles, 0);
  nvrtc().minor = 4;  // another compiler's cubins are others
  options.nvrtc_path = new_path_to(ATTN_FAKE_NVRTC);
  EXPECT_TRUE(compile_one(options).ok());
  EXPECT_GT(nvrtc().compiles, 0);
}

}  // namespace
}  // namespace attn::test
