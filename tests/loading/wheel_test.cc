// The library in a folder site-packages/attn_c finds NVRTC in site-packages/nvidia, as NVIDIA's
// wheels lay it out. Linked to nothing of the library: the copy in that folder is opened.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "attn_c.h"
#include "loading/fake_nvrtc.h"

namespace {

namespace fs = std::filesystem;

// A fresh site-packages folder with NVRTC at `nvrtc`, builtins beside it; the library's path.
std::string make_packages(const std::string& name, const std::string& nvrtc) {
  const fs::path root = fs::path(ATTN_TEST_BINARY_DIR) / "tests/loading" / name;
  fs::remove_all(root);
  fs::create_directories(root / "attn_c");
  fs::create_directories((root / nvrtc).parent_path());
  fs::copy_file(ATTN_TEST_LIBRARY, root / "attn_c/libattn_c.so.0");
  fs::copy_file(ATTN_FAKE_NVRTC, root / nvrtc);
  return (root / "attn_c/libattn_c.so.0").string();
}

void expect_compiler(const std::string& library_path, const std::string& nvrtc) {
  void* library = dlopen(library_path.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << dlerror();
  const auto get_api = reinterpret_cast<decltype(&attn_get_api)>(dlsym(library, "attn_get_api"));
  const attn_api* api = nullptr;
  ASSERT_EQ(get_api(ATTN_ABI_VERSION, &api, nullptr), ATTN_OK);
  attn_context_desc desc = ATTN_CONTEXT_DESC_INIT;
  desc.flags = ATTN_CONTEXT_IGNORE_ENVIRONMENT | ATTN_CONTEXT_NO_DISK_CACHE;
  desc.device_type = ATTN_DEVICE_CUDA;
  desc.driver_path = ATTN_FAKE_DRIVER;
  attn_error error = ATTN_ERROR_INIT;
  attn_context* context = nullptr;
  attn_session* session = nullptr;
  ASSERT_EQ(api->context_create(&desc, &context, &error), ATTN_OK) << error.message;
  EXPECT_EQ(api->session_create(context, nullptr, &session, &error), ATTN_OK) << error.message;
  api->session_release(session);
  api->context_release(context);

  const fs::path path = fs::path(library_path).parent_path().parent_path() / nvrtc;
  void* compiler = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(compiler, nullptr) << path << " was not opened";
  const auto state =
      reinterpret_cast<attn::test::FakeNvrtc* (*)()>(dlsym(compiler, "fake_nvrtc"))();
  EXPECT_EQ(state->compiles, 1);
}

TEST(Wheel, Cuda13) {
  const std::string nvrtc = "nvidia/cu13/lib/libnvrtc.so.13";
  expect_compiler(make_packages("wheel-cuda13", nvrtc), nvrtc);
}

TEST(Wheel, Cuda12) {
  const std::string nvrtc = "nvidia/cuda_nvrtc/lib/libnvrtc.so.12";
  expect_compiler(make_packages("wheel-cuda12", nvrtc), nvrtc);
}

}  // namespace
