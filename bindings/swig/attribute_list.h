// Attributes of an operator, for languages that cannot lay out arrays of C structs themselves.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "attn_c.h"

// A list of attn_attribute with the names and values that they point to. Threads: one at a time.
class AttributeList {
 public:
  void add_int(const std::string& name, int64_t value) {
    add(name, ATTN_ATTRIBUTE_INT, 0, nullptr).i = value;
  }

  void add_float(const std::string& name, double value) {
    add(name, ATTN_ATTRIBUTE_FLOAT, 0, nullptr).f = value;
  }

  void add_string(const std::string& name, const std::string& value) {
    const std::string& kept = texts_.emplace_back(value);
    add(name, ATTN_ATTRIBUTE_STRING, kept.size(), kept.c_str());
  }

  void add_ints(const std::string& name, const std::vector<int64_t>& values) {
    const std::vector<int64_t>& kept = ints_.emplace_back(values);
    add(name, ATTN_ATTRIBUTE_INTS, kept.size(), kept.data());
  }

  void add_floats(const std::string& name, const std::vector<double>& values) {
    const std::vector<float>& kept = floats_.emplace_back(values.begin(), values.end());
    add(name, ATTN_ATTRIBUTE_FLOATS, kept.size(), kept.data());
  }

  uint32_t size() const { return static_cast<uint32_t>(attributes_.size()); }
  const attn_attribute* data() const { return attributes_.data(); }

 private:
  attn_attribute& add(const std::string& name, uint32_t type, size_t count, const void* data) {
    const std::string& kept = texts_.emplace_back(name);
    attributes_.push_back({kept.c_str(), type, static_cast<uint32_t>(count), 0, 0.0, data});
    return attributes_.back();
  }

  // Deques, because growing them moves nothing that the attributes point to.
  std::deque<std::string> texts_;
  std::deque<std::vector<int64_t>> ints_;
  std::deque<std::vector<float>> floats_;
  std::vector<attn_attribute> attributes_;
};
