// Host help: graphs. The CPU has none, so no graph is ever made here and each call says so.
#include "api/context.h"
#include "api/guard.h"
#include "attn_c_host.h"

// No back end of this build makes one; the type gives handles of graphs a kind word to check.
struct attn_host_graph final : attn::api::Object<attn_host_graph, attn::api::ObjectKind::kGraph> {
};

namespace {

constexpr const char* kNoGraphs = "the CPU back end has no graphs; execute runs at once";

}  // namespace

using attn::api::checked;
using attn::api::guard;

attn_status attn_host_graph_begin_capture(attn_context* context, void* /*stream*/,
                                          attn_error* error) {
  return guard(error, [&] {
    checked(context, "context");
    attn::fail_unsupported(kNoGraphs);
  });
}

attn_status attn_host_graph_end_capture(attn_context* context, void* /*stream*/,
                                        attn_host_graph** graph, attn_error* error) {
  return guard(error, [&] {
    checked(context, "context");
    if (graph == nullptr) attn::fail_argument("graph is null; it receives the graph");
    attn::fail_unsupported(kNoGraphs);
  });
}

attn_status attn_host_graph_launch(attn_host_graph* graph, void* /*stream*/, attn_error* error) {
  return guard(error, [&] {
    checked(graph, "graph");
    attn::fail_unsupported(kNoGraphs);
  });
}

void attn_host_graph_release(attn_host_graph* graph) { attn::api::release_handle(graph); }
