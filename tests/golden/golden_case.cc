#include "golden/golden_case.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

namespace attn::golden {
namespace {

constexpr unsigned char kFill = 0xCD;  // what memory holds that no input reads

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(); }

std::string list(const std::vector<int64_t>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + std::to_string(values[i]);
  return text + "]";
}

template <class Items, class Text>
void print_list(std::ostream& out, const char* name, const Items& items, Text text) {
  out << " \"" << name << "\": [";
  const char* separator = "\n";
  for (const auto& item : items) {
    out << separator << "  " << text(item);
    separator = ",\n";
  }
  out << (items.empty() ? "]" : "\n ]");
}

int64_t padded(int64_t bytes) { return (bytes + 7) / 8 * 8; }

std::string span(int64_t& offset, int64_t count, int64_t size) {
  const std::string text =
      "{\"offset\": " + std::to_string(offset) + ", \"count\": " + std::to_string(count) + "}";
  offset += padded(count * size);
  return text;
}

template <class T>
void append(std::vector<unsigned char>& data, const std::vector<T>& values) {
  const size_t at = data.size(), bytes = values.size() * sizeof(T);
  data.resize(at + static_cast<size_t>(padded(static_cast<int64_t>(bytes))), 0);
  if (bytes > 0) std::memcpy(&data[at], values.data(), bytes);
}

}  // namespace

ElementType element_of(Type type) {
  switch (type) {
    case Type::kFloat32:
      return {"float32", 2, 32, type};
    case Type::kFloat16:
      return {"float16", 2, 16, type};
    case Type::kBfloat16:
      return {"bfloat16", 4, 16, type};
    case Type::kFloat64:
      return {"float64", 2, 64, type};
    case Type::kInt32:
      return {"int32", 0, 32, type};
    case Type::kInt64:
      return {"int64", 0, 64, type};
    case Type::kBool:
      return {"bool", 6, 8, type};
  }
  throw std::logic_error("an unknown type");
}

GoldenCase::GoldenCase(std::string name, std::string about, std::string domain, std::string type,
                       int32_t version)
    : name_(std::move(name)),
      about_(std::move(about)),
      domain_(std::move(domain)),
      type_(std::move(type)),
      version_(version) {}

void GoldenCase::set_int(const std::string& name, int64_t value) {
  attributes_.push_back({name, "int", std::to_string(value)});
}

void GoldenCase::set_float(const std::string& name, double value) {
  attributes_.push_back({name, "float", nlohmann::json(value).dump()});
}

void GoldenCase::set_text(const std::string& name, const std::string& value) {
  attributes_.push_back({name, "string", quoted(value)});
}

void GoldenCase::by_plan(int64_t max_batch, int64_t max_query_length, int64_t max_total_length) {
  by_plan_ = true;
  max_batch_ = max_batch;
  max_query_length_ = max_query_length;
  max_total_length_ = max_total_length;
}

size_t GoldenCase::memory(ElementType type, std::vector<int64_t> shape, const Place& place) {
  Block block{type, test::Tensor(type.carrier, std::move(shape), place.layout), place.lead,
              place.tail};
  block.tensor.buffer().fill(kFill);
  blocks_.push_back(std::move(block));
  return blocks_.size() - 1;
}

View GoldenCase::input(uint32_t slot, const std::string& name, size_t block, const View& view) {
  blocks_[block].read = true;
  inputs_.push_back({slot, name, block, view});
  return view;
}

void GoldenCase::output(uint32_t slot, const std::string& name, size_t block, const View& view) {
  outputs_.push_back({slot, name, block, view});
}

const GoldenCase::Argument& GoldenCase::output_at(uint32_t slot) const {
  for (const Argument& argument : outputs_) {
    if (argument.slot == slot) return argument;
  }
  throw std::logic_error(name_ + ": no such output");
}

void GoldenCase::expect(uint32_t slot, std::vector<double> values, int64_t row_length,
                        Bounds bounds) {
  if (static_cast<int64_t>(values.size()) != output_at(slot).view.elements()) {
    throw std::logic_error(name_ + ": an output and its values differ in size");
  }
  results_.push_back({slot, std::move(values), row_length, std::move(bounds), {}});
}

void GoldenCase::expect_exact(uint32_t slot, const std::vector<double>& values) {
  const Type type = output_at(slot).view.type;
  const size_t size = static_cast<size_t>(test::size_of(type));
  std::vector<unsigned char> bytes(values.size() * size);
  for (size_t i = 0; i < values.size(); ++i) test::store(&bytes[i * size], type, values[i]);
  expect_bytes(slot, std::move(bytes));
}

void GoldenCase::expect_bytes(uint32_t slot, std::vector<unsigned char> bytes) {
  const View& view = output_at(slot).view;
  if (static_cast<int64_t>(bytes.size()) != view.elements() * test::size_of(view.type)) {
    throw std::logic_error(name_ + ": an output and its bytes differ in size");
  }
  Result result{};
  result.slot = slot;
  result.bytes = std::move(bytes);
  results_.push_back(std::move(result));
}

void GoldenCase::expect_error(int32_t status, const std::string& message) {
  status_ = status;
  message_ = message;
}

std::string GoldenCase::argument_text(const Argument& argument) const {
  const Block& block = blocks_[argument.block];
  const auto* begin = block.tensor.buffer().data();
  const int64_t offset =
      block.lead + (static_cast<const unsigned char*>(argument.view.data) - begin);
  // The first argument of a block has the block's type; a view of it may have another.
  const ElementType type =
      argument.view.type == block.type.carrier ? block.type : element_of(argument.view.type);
  return "{\"slot\": " + std::to_string(argument.slot) + ", \"name\": " + quoted(argument.name) +
         ", \"type\": \"" + type.name + "\", \"code\": " + std::to_string(type.code) +
         ", \"bits\": " + std::to_string(type.bits) + ", \"shape\": " + list(argument.view.shape) +
         ", \"strides\": " + list(argument.view.strides) +
         ", \"memory\": " + std::to_string(argument.block) +
         ", \"byte_offset\": " + std::to_string(offset) + "}";
}

std::string GoldenCase::json() const {
  std::ostringstream out;
  int64_t offset = 0;
  out << "{\n \"format\": 1,\n \"name\": " << quoted(name_) << ",\n \"about\": " << quoted(about_)
      << ",\n \"operator\": {\"domain\": " << quoted(domain_) << ", \"type\": " << quoted(type_)
      << ", \"version\": " << version_ << ", \"label\": \"golden\"},\n";
  print_list(out, "attributes", attributes_, [](const Attribute& attribute) {
    return "{\"name\": " + quoted(attribute.name) + ", \"kind\": \"" + attribute.kind +
           "\", \"value\": " + attribute.value + "}";
  });
  out << ",\n \"call\": \"" << (by_plan_ ? "plan" : "binding") << "\",\n";
  out << " \"engine\": " << (engine_.empty() ? "null" : quoted(engine_)) << ",\n";
  out << " \"range\": {\"max_batch\": " << max_batch_
      << ", \"max_query_length\": " << max_query_length_
      << ", \"max_total_length\": " << max_total_length_ << "},\n";
  print_list(out, "memory", blocks_, [&offset](const Block& block) {
    const std::string bytes = "{\"bytes\": " + std::to_string(block.bytes());
    if (!block.read) return bytes + ", \"fill\": " + std::to_string(kFill) + "}";
    const std::string text = bytes + ", \"offset\": " + std::to_string(offset) + "}";
    offset += padded(block.bytes());
    return text;
  });
  const auto argument = [this](const Argument& one) { return argument_text(one); };
  out << ",\n";
  print_list(out, "inputs", inputs_, argument);
  out << ",\n";
  print_list(out, "outputs", outputs_, argument);
  out << ",\n";
  if (status_ != 0) {
    out << " \"error\": {\"status\": " << status_ << ", \"message\": " << quoted(message_) << "}\n";
    out << "}\n";
    return out.str();
  }
  print_list(out, "results", results_, [&offset](const Result& result) {
    std::string text = "{\"slot\": " + std::to_string(result.slot);
    if (result.row_length == 0) {
      text += ", \"bytes\": " + span(offset, static_cast<int64_t>(result.bytes.size()), 1);
    } else {
      text += ", \"values\": " + span(offset, static_cast<int64_t>(result.values.size()), 8);
      text += ", \"row\": " + std::to_string(result.row_length);
      text +=
          ", \"bounds\": " + span(offset, static_cast<int64_t>(result.bounds.rows.size()) + 1, 8);
    }
    return text + "}";
  });
  out << "\n}\n";
  return out.str();
}

std::vector<unsigned char> GoldenCase::data() const {
  std::vector<unsigned char> data;
  for (const Block& block : blocks_) {
    if (!block.read) continue;
    std::vector<unsigned char> bytes(static_cast<size_t>(block.bytes()), kFill);
    const test::Buffer& buffer = block.tensor.buffer();
    if (buffer.size() > 0) {
      std::memcpy(&bytes[static_cast<size_t>(block.lead)], buffer.data(),
                  static_cast<size_t>(buffer.size()));
    }
    append(data, bytes);
  }
  for (const Result& result : results_) {
    if (status_ != 0) break;
    if (result.row_length == 0) {
      append(data, result.bytes);
      continue;
    }
    append(data, result.values);
    std::vector<double> bounds = result.bounds.rows;
    bounds.push_back(result.bounds.whole);
    append(data, bounds);
  }
  return data;
}

std::vector<GoldenCase> all_cases() {
  std::vector<GoldenCase> cases;
  add_group_query(cases);
  add_attention(cases);
  add_varlen(cases);
  add_linear(cases);
  add_rows(cases);
  add_errors(cases);
  return cases;
}

}  // namespace attn::golden
