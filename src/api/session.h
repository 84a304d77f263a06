// attn_session: one order of executions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "api/context.h"
#include "api/handle.h"
#include "core/backend.h"

// Threads: one call at a time, kept by `busy`.
struct attn_session final : attn::api::Object<attn_session, attn::api::ObjectKind::kSession> {
  attn_session(attn_context& owner, std::string name);
  ~attn_session();

  // Scratch of the context's allocator that trim took away and has to give back.
  struct Scratch {
    void* memory = nullptr;
    uint64_t bytes = 0;
  };

  // Takes the scratch away unless a call is inside. The host's memory is returned, so that its
  // allocator is not called under a lock; what a device held waits for Backend::reclaim().
  Scratch trim_if_idle();

  // Host memory of at least `bytes` from the context's allocator, kept and grown only; null where
  // the context has none and on devices: the back end's session then sees to it. The session must
  // be held.
  void* allocator_scratch(uint64_t bytes);

  attn::api::Ref<attn_context> context;
  std::string label;
  attn::api::BusyFlag busy;
  std::unique_ptr<attn::BackendSession> backend;

 private:
  void free_scratch();

  attn::api::LiveCount live_;
  Scratch take_scratch();

  Scratch scratch_;
};
