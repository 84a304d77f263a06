#include "api/context.h"

#include <algorithm>

#include "api/environment.h"
#include "api/guard.h"
#include "api/session.h"
#include "api/struct_io.h"
#include "api/text.h"

namespace attn::api {
namespace {

// The desc wins over the environment.
void override_with(std::string& value, const char* desc_text) {
  if (desc_text != nullptr) value = desc_text;
}

std::unique_ptr<attn_context> make_context(const attn_context_desc& desc) {
  check_flags(desc.flags, ATTN_CONTEXT_IGNORE_ENVIRONMENT | ATTN_CONTEXT_NO_DISK_CACHE, "desc");
  check_reserved(desc.reserved, "desc");
  if (desc.thread_count < 0) {
    fail_argument("thread_count is ", desc.thread_count, "; 0 (all) and up are accepted");
  }
  Environment environment;
  if ((desc.flags & ATTN_CONTEXT_IGNORE_ENVIRONMENT) == 0) environment = read_environment();

  auto context = std::make_unique<attn_context>();
  context->callbacks.take(desc, environment.log_level);

  DeviceOptions options;
  options.identity.type = desc.device_type == 0 ? ATTN_DEVICE_CPU : desc.device_type;
  options.identity.id = desc.device_id;
  options.thread_count = desc.thread_count != 0     ? desc.thread_count
                         : desc.executor != nullptr ? 0  // the host's pool says how many
                                                    : environment.thread_count;
  options.native_context = desc.native_context;
  options.cache_limit_bytes = desc.cache_limit_bytes;
  options.disk_cache = (desc.flags & ATTN_CONTEXT_NO_DISK_CACHE) == 0 && !environment.cache_off;
  options.simd_level = environment.simd_level;
  options.driver_path = environment.driver_path;
  options.nvrtc_path = environment.nvrtc_path;
  options.cache_folder = environment.cache_folder;
  override_with(options.simd_level, desc.simd_level);
  override_with(options.driver_path, desc.driver_path);
  override_with(options.nvrtc_path, desc.nvrtc_path);
  override_with(options.cache_folder, desc.cache_folder);

  OpenDevice device = [&] {
    try {
      return open_device(options, context->callbacks, context->cpu_stats);
    } catch (const Error& error) {
      constexpr std::string_view kArgument = "simd_level is ";
      const bool from_environment = desc.simd_level == nullptr && !environment.simd_level.empty();
      if (!from_environment || !error.message().starts_with(kArgument)) throw;
      throw_error(error.status(), cat("environment variable ATTN_C_SIMD_LEVEL is ",
                                      error.message().substr(kArgument.size())));
    }
  }();
  context->backend = std::move(device.backend);
  context->facts = std::move(device.facts);
  if (desc.engine != nullptr) {
    context->engine = desc.engine;
    context->check_engine(context->engine, "engine");
  } else {
    context->engine = environment.engine;
    context->check_engine(context->engine, "environment variable ATTN_C_ENGINE");
  }
  context->callbacks.own();
  return context;
}

void fill_info(const DeviceFacts& facts, attn_context_info& info) {
  info.device_type = facts.identity.type;
  info.device_id = facts.identity.id;
  info.thread_count = facts.thread_count;
  info.device_name = facts.device_name.c_str();
  info.architecture = facts.architecture.c_str();
  info.simd_level = facts.simd_level.c_str();
  info.simd_levels = facts.simd_levels.c_str();
  info.engines = facts.engines.c_str();
  info.driver_version = facts.driver_version.c_str();
  info.driver_path = facts.driver_path.c_str();
  info.nvrtc_version = facts.nvrtc_version.c_str();
  info.nvrtc_path = facts.nvrtc_path.c_str();
  info.cache_folder = facts.cache_folder.c_str();
  info.uuid = facts.uuid.c_str();
  info.pci_id = facts.pci_id.c_str();
}

void fill_stats(const attn_context& context, attn_context_stats& stats) {
  const auto get = [](const std::atomic<uint64_t>& value) {
    return value.load(std::memory_order_relaxed);
  };
  stats.plans_created = get(context.stats.plans_created);
  stats.plan_cache_hits = get(context.stats.plan_cache_hits);
  stats.plans_live = get(context.stats.plans_live);
  stats.ops_live = get(context.stats.ops_live);
  stats.sessions_live = get(context.stats.sessions_live);
  stats.bindings_live = get(context.stats.bindings_live);
  stats.executions = get(context.stats.executions);
  const BackendCounters device = context.backend->counters();
  stats.scratch_allocations = get(context.stats.scratch_allocations) +
                              get(context.cpu_stats.scratch_allocations) +
                              device.scratch_allocations;
  stats.scratch_bytes = get(context.stats.scratch_bytes) + get(context.cpu_stats.scratch_bytes) +
                        device.scratch_bytes;
  stats.kernel_compiles = device.kernel_compiles;
  stats.disk_cache_hits = device.disk_cache_hits;
  stats.disk_cache_misses = device.disk_cache_misses;
}

}  // namespace
}  // namespace attn::api

void attn_context::check_engine(const std::string& name, const char* argument) const {
  if (name.empty()) return;
  const std::vector<std::string> known = backend->engine_names();
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  attn::fail_argument(argument, " is '", name, "', which is no engine of this context; there are ",
                      attn::api::join(known));
}

uint32_t attn_context::number_of(std::string_view label_text) {
  constexpr size_t kMaxLabels = 65536;  // what comes later is not told apart
  constexpr size_t kMaxBytes = sizeof(attn_fault_info::label) - 1;
  const std::string_view kept = attn::api::utf8_prefix(label_text, kMaxBytes);
  const std::lock_guard lock(labels_mutex);
  const auto found = label_numbers.find(kept);
  if (found != label_numbers.end()) return found->second;
  if (labels.size() == kMaxLabels) return kMaxLabels;
  const auto number = static_cast<uint32_t>(labels.size());
  label_numbers.emplace(labels.emplace_back(kept), number);
  return number;
}

std::string attn_context::label(uint32_t number) {
  const std::lock_guard lock(labels_mutex);
  return number < labels.size() ? labels[number] : std::string();
}

using attn::api::checked;
using attn::api::guard;

attn_status attn_context_create(const attn_context_desc* desc, attn_context** context,
                                attn_error* error) {
  return guard(error, [&] {
    if (context == nullptr) attn::fail_argument("context is null; it receives the new context");
    *context = attn::api::make_context(attn::api::copy_in_or_default(desc, "desc")).release();
  });
}

void attn_context_release(attn_context* context) { attn::api::release_handle(context); }

attn_status attn_context_get_info(attn_context* context, attn_context_info* info,
                                  attn_error* error) {
  return guard(error, [&](attn::api::Subject& subject) {
    attn_context& self = checked(context, "context");
    subject.keep(self);
    const attn::api::OutStruct out(info, "info");
    attn_context_info filled{};
    attn::api::fill_info(self.facts, filled);
    out.write(filled);
  });
}

attn_status attn_context_get_stats(attn_context* context, attn_context_stats* stats,
                                   attn_error* error) {
  return guard(error, [&](attn::api::Subject& subject) {
    attn_context& self = checked(context, "context");
    subject.keep(self);
    const attn::api::OutStruct out(stats, "stats");
    attn_context_stats filled{};
    attn::api::fill_stats(self, filled);
    out.write(filled);
  });
}

attn_status attn_context_trim(attn_context* context, attn_error* error) {
  return guard(error, [&](attn::api::Subject& subject) {
    attn_context& self = checked(context, "context");
    subject.keep(self);
    self.plans.trim();
    std::vector<attn_session::Scratch> taken;
    {
      const std::lock_guard lock(self.sessions_mutex);
      taken.reserve(self.sessions.size());
      for (attn_session* session : self.sessions) taken.push_back(session->trim_if_idle());
    }
    for (const attn_session::Scratch& scratch : taken) {
      if (scratch.memory == nullptr) continue;
      self.callbacks.deallocate(ATTN_MEMORY_HOST, scratch.memory, scratch.bytes, nullptr);
    }
    self.backend->reclaim();
  });
}
