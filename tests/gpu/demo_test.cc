// The recorded layers of a real model, by the program that shows how a runtime uses the library.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "gpu/device.h"

namespace attn::gpu {
namespace {

class GpuDemo : public GpuTest {};

// The folder above bin/, where this program lies.
std::string build_folder() {
  char path[4096] = {};
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  std::string text(path, length > 0 ? static_cast<size_t>(length) : 0);
  for (int i = 0; i < 2; ++i)
    text.resize(text.rfind('/') == std::string::npos ? 0 : text.rfind('/'));
  return text;
}

std::string environment_or(const char* name, const std::string& otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? text : otherwise;
}

void run_demo(const std::string& arguments) {
  const std::string library =
      environment_or("ATTN_C_LIBRARY", build_folder() + "/lib/libattn_c.so.0");
  const std::string data =
      environment_or("ATTN_C_SOURCE_FOLDER", ATTN_TEST_SOURCE_DIR) + "/tests/data/smollm2";
  const std::string command = "'" + build_folder() + "/bin/decode_loop' --library '" + library +
                              "' --data '" + data + "' --device cuda " + arguments + " 2>&1";
  std::FILE* pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  std::string text;
  char piece[4096];
  while (std::fgets(piece, sizeof piece, pipe) != nullptr) text += piece;
  EXPECT_EQ(pclose(pipe), 0) << command << "\n" << text;
  EXPECT_NE(text.find("layers: OK"), std::string::npos) << text;
  EXPECT_NE(text.find("replayed"), std::string::npos) << "no step was captured:\n" << text;
}

TEST_F(GpuDemo, RecordedLayers) { run_demo(""); }

// A prompt of one token leaves every other token to the captured step.
TEST_F(GpuDemo, RecordedLayersTokenByToken) { run_demo("--prompt 1"); }

}  // namespace
}  // namespace attn::gpu
