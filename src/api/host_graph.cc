// Host help: graphs of captured executions. Back ends without them, such as the CPU's, say so.
#include <memory>

#include "api/context.h"
#include "api/guard.h"
#include "attn_c_host.h"

// Threads: one launch at a time, kept by `busy`. Keeps the context.
struct attn_host_graph final : attn::api::Object<attn_host_graph, attn::api::ObjectKind::kGraph> {
  attn_host_graph(attn_context& owner, std::unique_ptr<attn::HostGraph> made)
      : context(owner), graph(std::move(made)) {}

  attn::api::Ref<attn_context> context;
  std::unique_ptr<attn::HostGraph> graph;
  attn::api::BusyFlag busy;
};

namespace {

attn::HostHelp& graphs_of(attn_context& context) {
  attn::HostHelp* help = context.backend->host_help();
  if (help == nullptr) {
    attn::fail_unsupported("this context's back end has no graphs; execute runs at once");
  }
  return *help;
}

}  // namespace

using attn::api::checked;
using attn::api::guard;
using attn::api::Subject;

attn_status attn_host_graph_begin_capture(attn_context* context, void* stream, attn_error* error) {
  return guard(error, [&](Subject& subject) {
    attn_context& owner = checked(context, "context");
    subject.keep(owner);
    graphs_of(owner).begin_capture(stream);
  });
}

attn_status attn_host_graph_end_capture(attn_context* context, void* stream,
                                        attn_host_graph** graph, attn_error* error) {
  return guard(error, [&](Subject& subject) {
    attn_context& owner = checked(context, "context");
    subject.keep(owner);
    if (graph == nullptr) attn::fail_argument("graph is null; it receives the graph");
    *graph = new attn_host_graph(owner, graphs_of(owner).end_capture(stream));
  });
}

attn_status attn_host_graph_launch(attn_host_graph* graph, void* stream, attn_error* error) {
  return guard(error, [&](Subject& subject) {
    attn_host_graph& self = checked(graph, "graph");
    subject.keep(self);
    const attn::api::BusyGuard busy(self.busy, "graph");
    self.graph->launch(stream);
  });
}

void attn_host_graph_release(attn_host_graph* graph) { attn::api::release_handle(graph); }
