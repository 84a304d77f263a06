// attn_context: a device with its options, plan cache, counters and callbacks.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "api/callbacks.h"
#include "api/device.h"
#include "api/handle.h"
#include "api/plan_cache.h"
#include "api/stats.h"
#include "cpu/cpu_backend.h"

// Threads: any. Sessions, ops, plans and bindings keep it.
struct attn_context final : attn::api::Object<attn_context, attn::api::ObjectKind::kContext> {
  static constexpr size_t kPlanCacheCapacity = 256;

  attn_context() : plans(stats, kPlanCacheCapacity) {}

  // Refuses the name of an engine that there is not. Empty is fine.
  void check_engine(const std::string& name, const char* argument) const;

  // `text` becomes one line, whatever a label in it holds.
  void log(int32_t severity, std::string text) const {
    if (!callbacks.logs(severity)) return;
    for (char& c : text) {
      if (static_cast<unsigned char>(c) < ' ') c = ' ';
    }
    callbacks.log(severity, text.c_str());
  }

  // The order is that of destruction, from the bottom up: the back end may use the callbacks and
  // counters until it is gone.
  attn::api::Callbacks callbacks;
  attn::cpu::CpuStats cpu_stats;
  attn::api::ContextStats stats;
  attn::api::DeviceFacts facts;
  std::string engine;  // forced for every plan, empty = choose
  std::unique_ptr<attn::Backend> backend;
  attn::api::PlanCache plans;

  // Labels of ops by number, so that a device can say whose lengths were bad. A fault may reach the
  // host when the op is gone, so they stay: each once, and no more of it than attn_fault_info can
  // hold.
  uint32_t number_of(std::string_view label_text);
  std::string label(uint32_t number);
  std::mutex labels_mutex;
  std::deque<std::string> labels;  // by number; growing moves none of the keys below
  std::unordered_map<std::string_view, uint32_t> label_numbers;

  // Sessions that live, for trim.
  std::mutex sessions_mutex;
  std::vector<attn_session*> sessions;
};
