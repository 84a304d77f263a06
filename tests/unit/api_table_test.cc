// Versions, the tables, and host help on the CPU.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "api_fixture.h"
#include "attn_c_host.h"

namespace attn::test {
namespace {

TEST(ApiTableTest, VersionsNeverFail) {
  EXPECT_STREQ(attn_version(), ATTN_VERSION_STRING);
  EXPECT_EQ(attn_abi_version(), ATTN_ABI_VERSION);
}

TEST(ApiTableTest, TheTableHoldsTheFlatFunctions) {
  const attn_api* api = nullptr;
  ASSERT_OK(attn_get_api(ATTN_ABI_VERSION, &api, &error));
  EXPECT_EQ(api->struct_size, sizeof(attn_api));
  EXPECT_EQ(api->abi_version, ATTN_ABI_VERSION);
  EXPECT_EQ(api->version, &attn_version);
  EXPECT_EQ(api->binding_describe, &attn_binding_describe);
  const attn_api* again = nullptr;
  ASSERT_OK(attn_get_api(0, &again, &error));
  EXPECT_EQ(again, api) << "the lowest of this major number, and the same table";
}

TEST(ApiTableTest, NewerClientsAreRefusedWithBothRanges) {
  const attn_api* api = nullptr;
  EXPECT_REFUSED(attn_get_api(ATTN_ABI_VERSION + 1, &api, &error), ATTN_VERSION,
                 "asks for ABI 0.2");
  EXPECT_REFUSED(attn_get_api(0x00010000u, &api, &error), ATTN_VERSION, "serves ABI 0.0 to 0.1");
  EXPECT_REFUSED(attn_get_api(0xffffffffu, &api, &error), ATTN_VERSION, "65535.65535");
  EXPECT_REFUSED(attn_get_api(0, nullptr, &error), ATTN_INVALID_ARGUMENT, "table is null");
  EXPECT_EQ(api, nullptr);
  const attn_host_api* host = nullptr;
  EXPECT_REFUSED(attn_host_get_api(ATTN_HOST_ABI_VERSION + 1, &host, &error), ATTN_VERSION,
                 "asks for ABI");
  ASSERT_OK(attn_host_get_api(ATTN_HOST_ABI_VERSION, &host, &error));
  EXPECT_EQ(host->struct_size, sizeof(attn_host_api));
  EXPECT_EQ(host->host_memory_alloc, &attn_host_memory_alloc);
}

TEST_F(ApiTest, HostMemory) {
  for (const uint32_t kind : {ATTN_MEMORY_HOST, ATTN_MEMORY_DEVICE, ATTN_MEMORY_PINNED}) {
    void *a = nullptr, *b = nullptr, *none = nullptr;
    ASSERT_OK(attn_host_memory_alloc(context, kind, 1000, &a, &error));
    ASSERT_OK(attn_host_memory_alloc(context, kind, 1000, &b, &error));
    ASSERT_OK(attn_host_memory_alloc(context, kind, 0, &none, &error));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 256, 0u);
    std::memset(a, 7, 1000);
    ASSERT_OK(attn_host_memory_copy(context, b, a, 1000, nullptr, &error));
    EXPECT_EQ(std::memcmp(a, b, 1000), 0);
    EXPECT_REFUSED(
        attn_host_memory_copy(context, static_cast<char*>(a) + 10, a, 20, nullptr, &error),
        ATTN_INVALID_ARGUMENT, "overlap");
    ASSERT_OK(attn_host_memory_copy(context, static_cast<char*>(a) + 10, a, 10, nullptr, &error));
    ASSERT_OK(attn_host_memory_copy(context, nullptr, nullptr, 0, nullptr, &error));
    EXPECT_REFUSED(attn_host_memory_copy(context, nullptr, a, 1, nullptr, &error),
                   ATTN_INVALID_ARGUMENT, "target is null");
    EXPECT_REFUSED(attn_host_memory_copy(context, a, nullptr, 1, nullptr, &error),
                   ATTN_INVALID_ARGUMENT, "source is null");
    for (void* memory : {a, b, none, static_cast<void*>(nullptr)}) {
      ASSERT_OK(attn_host_memory_free(context, kind, memory, &error));
    }
  }
  void* memory = nullptr;
  EXPECT_REFUSED(attn_host_memory_alloc(context, 3, 10, &memory, &error), ATTN_INVALID_ARGUMENT,
                 "kind is 3");
  EXPECT_REFUSED(attn_host_memory_free(context, 0, memory, &error), ATTN_INVALID_ARGUMENT,
                 "kind is 0");
  EXPECT_REFUSED(attn_host_memory_alloc(context, 1, UINT64_MAX, &memory, &error),
                 ATTN_OUT_OF_MEMORY, "18446744073709551615");
  EXPECT_REFUSED(attn_host_memory_alloc(context, 1, 1, nullptr, &error), ATTN_INVALID_ARGUMENT,
                 "memory is null");
  EXPECT_EQ(memory, nullptr);
}

TEST_F(ApiTest, TheCpuHasNullStreamsAndNoGraphs) {
  void* stream = &stream;
  ASSERT_OK(attn_host_stream_create(context, &stream, &error));
  EXPECT_EQ(stream, nullptr);
  ASSERT_OK(attn_host_stream_synchronize(context, stream, &error));
  ASSERT_OK(attn_host_stream_release(context, stream, &error));
  EXPECT_REFUSED(attn_host_stream_create(context, nullptr, &error), ATTN_INVALID_ARGUMENT,
                 "stream is null");
  EXPECT_REFUSED(attn_host_stream_synchronize(context, &stream, &error), ATTN_INVALID_ARGUMENT,
                 "stream is given");
  EXPECT_REFUSED(attn_host_stream_release(context, &stream, &error), ATTN_INVALID_ARGUMENT,
                 "stream is given");
  EXPECT_REFUSED(attn_host_memory_copy(context, nullptr, nullptr, 0, &stream, &error),
                 ATTN_INVALID_ARGUMENT, "stream is given");
  EXPECT_REFUSED(attn_host_graph_begin_capture(context, nullptr, &error), ATTN_UNSUPPORTED,
                 "has no graphs");
  attn_host_graph* graph = nullptr;
  EXPECT_REFUSED(attn_host_graph_end_capture(context, nullptr, &graph, &error), ATTN_UNSUPPORTED,
                 "has no graphs");
  EXPECT_REFUSED(attn_host_graph_end_capture(context, nullptr, nullptr, &error),
                 ATTN_INVALID_ARGUMENT, "graph is null");
  EXPECT_REFUSED(attn_host_graph_launch(nullptr, nullptr, &error), ATTN_INVALID_ARGUMENT,
                 "graph is null");
}

}  // namespace
}  // namespace attn::test
