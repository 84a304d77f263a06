#include "api/session.h"

#include <algorithm>

#include "api/execute.h"
#include "api/guard.h"
#include "api/struct_io.h"
#include "api/text.h"
#include "core/lengths.h"

attn_session::attn_session(attn_context& owner, std::string name)
    : context(owner),
      label(std::move(name)),
      backend(owner.backend->create_session()),
      live_(owner.stats.sessions_live) {
  const std::lock_guard lock(owner.sessions_mutex);
  owner.sessions.push_back(this);
}

attn_session::~attn_session() {
  {
    const std::lock_guard lock(context->sessions_mutex);
    std::erase(context->sessions, this);
  }
  free_scratch();
}

attn_session::Scratch attn_session::trim_if_idle() {
  if (!busy.try_maintain()) return {};
  const Scratch taken = take_scratch();
  backend->trim();
  busy.leave();
  return taken;
}

void* attn_session::allocator_scratch(uint64_t bytes) {
  const attn::api::Callbacks& callbacks = context->callbacks;
  if (!callbacks.has_allocator() || bytes == 0) return nullptr;
  if (context->facts.identity.type != ATTN_DEVICE_CPU) return nullptr;
  if (bytes <= scratch_.bytes) return scratch_.memory;
  free_scratch();
  const uint64_t alignment = context->facts.workspace_alignment;
  scratch_ = {callbacks.allocate(ATTN_MEMORY_HOST, bytes, alignment, nullptr), bytes};
  context->stats.scratch_allocations.fetch_add(1, std::memory_order_relaxed);
  context->stats.scratch_bytes.fetch_add(bytes, std::memory_order_relaxed);
  return scratch_.memory;
}

attn_session::Scratch attn_session::take_scratch() {
  const Scratch taken = scratch_;
  scratch_ = {};
  context->stats.scratch_bytes.fetch_sub(taken.bytes, std::memory_order_relaxed);
  return taken;
}

void attn_session::free_scratch() {
  const Scratch taken = take_scratch();
  if (taken.memory != nullptr) {
    context->callbacks.deallocate(ATTN_MEMORY_HOST, taken.memory, taken.bytes, nullptr);
  }
}

using attn::api::checked;
using attn::api::guard;

attn_status attn_session_create(attn_context* context, const attn_session_desc* desc,
                                attn_session** session, attn_error* error) {
  return guard(error, [&](attn::api::Subject& subject) {
    attn_context& owner = checked(context, "context");
    subject.keep(owner);
    const attn_session_desc options = attn::api::copy_in_or_default(desc, "desc");
    attn::api::check_flags(options.flags, 0, "desc");
    if (session == nullptr) attn::fail_argument("session is null; it receives the new session");
    owner.backend->reclaim();
    *session = new attn_session(owner, options.label == nullptr ? "" : options.label);
  });
}

void attn_session_release(attn_session* session) { attn::api::release_handle(session); }

attn_status attn_session_poll_faults(attn_session* session, attn_fault_info* info,
                                     attn_error* error) {
  return guard(error, [&](attn::api::Subject& subject) {
    attn_session& self = checked(session, "session");
    subject.keep(self);
    const attn::api::OutStruct out(info, "info");
    attn_fault_info filled{};
    const attn::FaultReport report = self.backend->poll_faults();
    filled.bits = report.bits;
    filled.batch = report.batch;
    filled.value = report.value;
    if (report.bits != 0) attn::api::copy_text(filled.label, self.context->label(report.label));
    attn::api::copy_text(filled.text, attn::fault_text(filled.bits));
    out.write(filled);
  });
}

attn_status attn_session_clear_faults(attn_session* session, void* stream, attn_error* error) {
  return guard(error, [&](attn::api::Subject& subject) {
    attn_session& self = checked(session, "session");
    subject.keep(self);
    attn::api::check_stream(*self.context, stream);
    const attn::api::BusyGuard busy(self.busy, "session", self.label);
    self.backend->clear_faults(stream);
  });
}
