// Host help of a back end that has its own: calls keep what they use, a graph is launched by one
// call at a time.
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "api_fake_backend.h"
#include "api_fixture.h"
#include "api_host.h"
#include "attn_c_host.h"

namespace attn::test {
namespace {

struct FakeGraph final : HostGraph {
  explicit FakeGraph(const std::function<void()>& work) : inside(work) {}
  void launch(void*) override { inside(); }
  const std::function<void()>& inside;
};

// Does the test's work inside of every call.
struct FakeHelp final : HostHelp {
  void* allocate(uint32_t, uint64_t) override {
    inside();
    return this;
  }
  void deallocate(uint32_t, void*) override { inside(); }
  void copy(void*, const void*, uint64_t, void*) override { inside(); }
  void* create_stream() override {
    inside();
    return this;
  }
  void synchronize(void*) override { inside(); }
  void release_stream(void*) override { inside(); }
  void begin_capture(void*) override { inside(); }
  std::unique_ptr<HostGraph> end_capture(void*) override {
    inside();
    return std::make_unique<FakeGraph>(inside);
  }
  std::function<void()> inside = [] {};
};

// A context with that help; its logger tells when it is gone.
struct Helped {
  Helped() {
    FakeBackend* backend = nullptr;
    context = make_fake_context(&backend);
    backend->help = &help;
    const attn_logger logger = host.logger();
    attn_context_desc desc = api_context_desc();
    desc.logger = &logger;
    context->callbacks.take(desc, 0);
    context->callbacks.own();
  }
  FakeHelp help;
  Host host;
  attn_context* context = nullptr;
};

TEST(ApiHostHelpTest, ACallKeepsItsContext) {
  char from[4] = {}, to[4] = {};
  attn_host_graph* graph = nullptr;
  void* made = nullptr;
  using Call = std::function<attn_status(attn_context*, attn_error*)>;
  const Call calls[] = {
      [&](attn_context* context, attn_error* error) {
        return attn_host_memory_alloc(context, ATTN_MEMORY_DEVICE, 8, &made, error);
      },
      [&](attn_context* context, attn_error* error) {
        return attn_host_memory_free(context, ATTN_MEMORY_DEVICE, to, error);
      },
      [&](attn_context* context, attn_error* error) {
        return attn_host_memory_copy(context, to, from, sizeof to, nullptr, error);
      },
      [&](attn_context* context, attn_error* error) {
        return attn_host_stream_create(context, &made, error);
      },
      [&](attn_context* context, attn_error* error) {
        return attn_host_stream_synchronize(context, nullptr, error);
      },
      [&](attn_context* context, attn_error* error) {
        return attn_host_stream_release(context, nullptr, error);
      },
      [&](attn_context* context, attn_error* error) {
        return attn_host_graph_begin_capture(context, nullptr, error);
      },
      [&](attn_context* context, attn_error* error) {
        return attn_host_graph_end_capture(context, nullptr, &graph, error);
      }};
  for (const Call& call : calls) {
    Helped helped;
    int gone_inside = -1;
    helped.help.inside = [&] {
      attn_context_release(helped.context);
      gone_inside = helped.host.released;
    };
    ASSERT_OK(call(helped.context, &error));
    EXPECT_EQ(gone_inside, 0) << "the context went while the call still used it";
    attn_host_graph_release(graph);
    graph = nullptr;
    EXPECT_EQ(helped.host.released, 1);
  }
}

TEST(ApiHostHelpTest, ALaunchKeepsItsGraph) {
  Helped helped;
  attn_host_graph* graph = nullptr;
  ASSERT_OK(attn_host_graph_end_capture(helped.context, nullptr, &graph, &error));
  attn_context_release(helped.context);
  int gone_inside = -1;
  helped.help.inside = [&] {
    attn_host_graph_release(graph);
    gone_inside = helped.host.released;
  };
  ASSERT_OK(attn_host_graph_launch(graph, nullptr, &error));
  EXPECT_EQ(gone_inside, 0) << "graph and context went while the launch still used them";
  EXPECT_EQ(helped.host.released, 1);
}

TEST(ApiHostHelpTest, AGraphIsLaunchedByOneCallAtATime) {
  Helped helped;
  attn_host_graph* graph = nullptr;
  ASSERT_OK(attn_host_graph_end_capture(helped.context, nullptr, &graph, &error));
  int launches = 0;
  helped.help.inside = [&] {
    if (++launches > 2) return;  // what is not refused would launch itself for ever
    EXPECT_REFUSED(attn_host_graph_launch(graph, nullptr, &error), ATTN_BUSY,
                   "graph is in use by another call");
  };
  ASSERT_OK(attn_host_graph_launch(graph, nullptr, &error));
  ASSERT_OK(attn_host_graph_launch(graph, nullptr, &error));
  EXPECT_EQ(launches, 2);
  attn_host_graph_release(graph);
  attn_context_release(helped.context);
}

}  // namespace
}  // namespace attn::test
