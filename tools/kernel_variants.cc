// Lists and compiles kernel variants exactly as the library would choose and compile them, without
// a GPU: for tests/kernels and tools/make_kernel_pack.py.
//
//   kernel_variants list FILE SET TARGET...   one line a variant: its fields, joined with tabs
//   kernel_variants compile NVRTC FOLDER      compiles the lines on standard input; writes
//                                             FOLDER/<number>.cubin and .log, prints the numbers
//   kernel_variants find PACK                 looks up the keys of the lines on standard input
//
// A line of FILE is: set, types, head size, head size of V, features; lists are joined with ",".
// tests/kernels/variants.txt says more. SET picks the lines that name it.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "cuda/attention_engines.h"
#include "cuda/cubin_pack.h"
#include "cuda/cuda_plan.h"
#include "cuda/kernel_store.h"
#include "cuda/linear_attention_engines.h"
#include "cuda/nvrtc_api.h"
#include "cuda/row_operators.h"

namespace attn::cuda {
namespace {

// What the driver reports for devices of these targets: compute capability and the largest shared
// memory of one block.
struct Target {
  const char* name;
  int major, minor, shared_bytes;
};
constexpr Target kTargets[] = {
    {"sm_80", 8, 0, 163 << 10},   {"sm_86", 8, 6, 99 << 10},     {"sm_89", 8, 9, 99 << 10},
    {"sm_90a", 9, 0, 227 << 10},  {"sm_100a", 10, 0, 227 << 10}, {"sm_103a", 10, 3, 227 << 10},
    {"sm_120a", 12, 0, 99 << 10},
};

DeviceTraits traits_of(const std::string& name) {
  for (const Target& target : kTargets) {
    if (name != target.name) continue;
    DeviceTraits traits;
    traits.set_architecture(target.major, target.minor);
    traits.shared_bytes_per_block = target.shared_bytes;
    traits.multiprocessors = 100;
    if (traits.target != name)
      throw_error(ATTN_INTERNAL, cat(name, " is not what is compiled for"));
    return traits;
  }
  fail_argument("unknown target ", name);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  if (!text.empty() && text.back() == separator) parts.emplace_back();
  return parts;
}

DType type_of(const std::string& name) {
  if (name == "f16") return kFloat16;
  if (name == "bf16") return kBfloat16;
  if (name == "f32") return kFloat32;
  fail_argument("unknown type ", name);
}

void add_feature(const std::string& feature, AttentionSpec& spec) {
  if (feature == "plain") return;
  if (feature == "additive" || feature == "boolean") {
    spec.mask = feature == "additive" ? MaskKind::kAdditive : MaskKind::kBoolean;
    spec.mask_type = feature == "additive" ? spec.type : kBool;
  } else if (feature == "softcap") {
    spec.softcap = 30;
  } else if (feature == "sink") {
    spec.sink = Sink::kPerHead;
  } else if (feature == "zero-sink") {
    spec.sink = Sink::kZero;
  } else if (feature == "lse") {
    spec.log_sum_exp = true;
  } else if (feature == "rotary") {
    spec.query_transform.rotary = true;
  } else if (feature == "packed") {
    spec.packed = true;
  } else if (feature == "negative-scale") {
    spec.scale = -1;
  } else {
    fail_argument("unknown feature ", feature);
  }
}

// The words of a line of linear attention: "linear" first, then the rule and the decay's form.
LinearAttentionSpec linear_spec(const std::string& type, const std::vector<std::string>& words,
                                const AttentionSpec& sizes) {
  LinearAttentionSpec spec;
  spec.type = spec.state_type = type_of(type);
  spec.q_heads = spec.key_heads = 16;
  spec.kv_heads = 32;
  spec.head_size = sizes.head_size;
  spec.v_head_size = sizes.v_head_size;
  for (const std::string& word : words) {
    if (word == "delta") {
      spec.delta = true;
    } else if (word == "head-decay") {
      spec.decay = DecayForm::kPerHead;
    } else if (word == "key-decay") {
      spec.decay = DecayForm::kPerKey;
    } else if (word == "grouped") {
      spec.q_heads = 64;
    } else if (word != "linear") {
      fail_argument("unknown feature ", word);
    }
  }
  return spec;
}

// One variant with what it is for.
struct Row {
  std::string target, engine, purpose;
  KernelVariant variant;
};

// Fields without tabs, so that scripts split the line: target, key in the pack, engine, purpose,
// source, entry, threads, dynamic shared bytes, the device's limit, definitions joined with spaces.
void print(const Row& row, int limit) {
  std::string definitions;
  for (const std::string& one : row.variant.definitions) definitions += one + ' ';
  if (!definitions.empty()) definitions.pop_back();
  std::cout << row.target << '\t' << pack_key(row.target, row.variant.text()) << '\t' << row.engine
            << '\t' << row.purpose << '\t' << row.variant.source << '\t' << row.variant.entry
            << '\t' << row.variant.threads << '\t' << row.variant.shared_bytes << '\t' << limit
            << '\t' << definitions << '\n';
}

Row parse_row(const std::string& line) {
  const std::vector<std::string> fields = split(line, '\t');
  if (fields.size() < 10) fail_argument("not a line of `list`: ", line);
  Row row{fields[0], fields[2], fields[3], {}};
  row.variant.source = fields[4];
  row.variant.entry = fields[5];
  row.variant.definitions = split(fields[9], ' ');
  return row;
}

class Lister {
 public:
  Lister(std::string file, std::string set) : file_(std::move(file)), set_(std::move(set)) {}

  void list(const std::string& target) {
    const DeviceTraits traits = traits_of(target);
    printed_.clear();
    std::ifstream lines(file_);
    if (!lines) fail_argument("cannot read ", file_);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line.substr(0, line.find('#')));
      std::string sets, types, features;
      AttentionSpec spec;
      if (!(words >> sets)) continue;
      if (!(words >> types >> spec.head_size >> spec.v_head_size >> features)) {
        fail_argument("cannot understand: ", line);
      }
      const std::vector<std::string> named = split(sets, ',');
      if (std::find(named.begin(), named.end(), set_) == named.end()) continue;
      for (const std::string& type : split(types, ',')) list_type(traits, type, features, spec);
    }
  }

 private:
  void list_type(const DeviceTraits& traits, const std::string& type, const std::string& features,
                 AttentionSpec spec) {
    spec.type = type_of(type);
    spec.q_heads = 8;
    spec.kv_heads = 2;
    spec.scale = 0.125;
    const std::vector<std::string> words = split(features, ',');
    const std::string purpose =
        cat(type, " ", spec.head_size, "/", spec.v_head_size, " ", features);
    if (words.front() == "linear") {
      list_linear(traits, linear_spec(type, words, spec), purpose);
      return;
    }
    for (const std::string& feature : words) add_feature(feature, spec);
    for (const AttentionEngine* engine : attention_engines()) {
      std::string why_not;
      if (engine->supports(spec, traits, &why_not)) {
        once({traits.target, engine->name(), purpose, engine->variant(spec, traits)}, traits);
      } else {
        std::cerr << traits.target << ": " << engine->name() << ": " << purpose << ": " << why_not
                  << '\n';
      }
    }
    const int channels = std::max(spec.head_size, spec.v_head_size);
    once({traits.target, "fused-kv-update", type, kv_update_variant(spec.type, channels)}, traits);
    once({traits.target, kRotaryName, type, rotary_variant(spec.type)}, traits);
    once({traits.target, kScatterName, "any", scatter_variant()}, traits);
    once({traits.target, "packed-lengths", type, packed_lengths_variant(spec.type)}, traits);
    once({traits.target, "session", "any", session_variant("attn_clear_faults")}, traits);
  }

  void list_linear(const DeviceTraits& traits, const LinearAttentionSpec& spec,
                   const std::string& purpose) {
    for (const LinearAttentionEngine* engine : linear_attention_engines()) {
      std::string why_not;
      if (engine->supports(spec, traits, &why_not)) {
        once({traits.target, engine->name(), purpose, engine->variant(spec, traits)}, traits);
      } else {
        std::cerr << traits.target << ": " << engine->name() << ": " << purpose << ": " << why_not
                  << '\n';
      }
    }
  }

  // What compiles to the same cubin is listed once.
  void once(const Row& row, const DeviceTraits& traits) {
    if (printed_[row.variant.text()]++ == 0) print(row, traits.shared_bytes_per_block);
  }

  std::string file_, set_;
  std::map<std::string, int> printed_;
};

void write_file(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  if (!file.flush()) fail_argument("cannot write ", path);
}

// Prints a line a variant: its number and "ok" or "failed"; the log says why.
int compile(const std::string& nvrtc_path, const std::string& folder, bool line_info) {
  const Nvrtc& nvrtc = Nvrtc::get(nvrtc_path);
  int failures = 0;
  for (std::string line; std::getline(std::cin, line);) {
    const size_t tab = line.find('\t');
    const std::string number = line.substr(0, tab);
    const Row row = parse_row(line.substr(tab + 1));
    CompiledKernel kernel;
    try {
      kernel = compile_kernel(nvrtc, row.target, row.variant, line_info);
    } catch (const Error& error) {
      kernel.log = error.message();
      ++failures;
    }
    write_file(cat(folder, "/", number, ".cubin"), kernel.cubin);
    write_file(cat(folder, "/", number, ".log"), kernel.log);
    std::cout << number << (kernel.cubin.empty() ? " failed" : " ok") << std::endl;
  }
  return failures == 0 ? 0 : 1;
}

int find(const std::string& pack_path) {
  const CubinPack pack(pack_path);
  int missing = 0;
  for (std::string line; std::getline(std::cin, line);) {
    const std::vector<std::string> fields = split(line, '\t');
    const auto cubin = fields.size() < 2 ? std::nullopt : pack.find(fields[1]);
    if (!cubin) ++missing;
    std::cout << (cubin ? cubin->size() : 0) << '\n';
  }
  std::cerr << pack.size() << " entries, " << missing << " of those asked for are missing\n";
  return missing == 0 ? 0 : 1;
}

int run(const std::vector<std::string>& words) {
  if (words.size() >= 4 && words[0] == "list") {
    Lister lister(words[1], words[2]);
    for (size_t i = 3; i < words.size(); ++i) lister.list(words[i]);
    return 0;
  }
  if (words.size() == 3 && words[0] == "compile") return compile(words[1], words[2], false);
  if (words.size() == 3 && words[0] == "compile-with-lines") {
    return compile(words[1], words[2], true);
  }
  if (words.size() == 2 && words[0] == "find") return find(words[1]);
  if (words.size() == 2 && words[0] == "nvrtc") {
    std::cout << Nvrtc::get(words[1]).version_text() << '\n';
    return 0;
  }
  std::cerr << "usage: kernel_variants list FILE SET TARGET... | compile NVRTC FOLDER | "
               "compile-with-lines NVRTC FOLDER | find PACK | nvrtc NVRTC\n";
  return 2;
}

}  // namespace
}  // namespace attn::cuda

int main(int count, char** words) {
  try {
    return attn::cuda::run({words + 1, words + count});
  } catch (const attn::Error& error) {
    std::cerr << "kernel_variants: " << error.message() << '\n';
    return 1;
  }
}
