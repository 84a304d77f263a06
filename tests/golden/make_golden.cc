// Writes the golden cases, or compares them with those that are there.
//
//   make_golden FOLDER           writes <name>.json and <name>.bin for each case
//   make_golden FOLDER --check   fails where a file differs, is missing or has no case
//
// Files must agree byte for byte, but for expected numbers and bounds: those come from libm, whose
// last bit may be another one elsewhere.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "golden/golden_case.h"

namespace {

using attn::golden::GoldenCase;
using Bytes = std::vector<unsigned char>;
namespace fs = std::filesystem;

Bytes read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write(const fs::path& path, const void* data, size_t size) {
  std::ofstream file(path, std::ios::binary);
  file.write(static_cast<const char*>(data), static_cast<std::streamsize>(size));
  if (!file) std::printf("cannot write %s\n", path.c_str());
}

// Whether eight bytes are the same, or numbers that differ by rounding alone.
bool same_word(const unsigned char* a, const unsigned char* b) {
  if (std::memcmp(a, b, 8) == 0) return true;
  double x = 0, y = 0;
  std::memcpy(&x, a, 8);
  std::memcpy(&y, b, 8);
  return std::fabs(x - y) <= 1e-9 * std::max(std::fabs(x), std::fabs(y));
}

bool same_data(const Bytes& a, const Bytes& b) {
  if (a.size() != b.size()) return false;
  for (size_t at = 0; at + 8 <= a.size(); at += 8) {
    if (!same_word(&a[at], &b[at])) return false;
  }
  return true;
}

int check(const fs::path& folder, const std::vector<GoldenCase>& cases) {
  int findings = 0;
  std::set<std::string> known;
  const auto complain = [&findings](const std::string& what) {
    std::printf("%s\n", what.c_str());
    ++findings;
  };
  for (const GoldenCase& c : cases) {
    known.insert({c.name() + ".json", c.name() + ".bin"});
    const std::string json = c.json();
    if (read(folder / (c.name() + ".json")) != Bytes(json.begin(), json.end())) {
      complain(c.name() + ".json is not what the generator writes");
    }
    if (!same_data(read(folder / (c.name() + ".bin")), c.data())) {
      complain(c.name() + ".bin is not what the generator writes");
    }
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (!known.contains(name)) complain(name + " belongs to no case");
  }
  return findings;
}

}  // namespace

int main(int argc, char** argv) {
  const bool checks = argc == 3 && std::strcmp(argv[2], "--check") == 0;
  if (argc != 2 && !checks) {
    std::printf("usage: make_golden FOLDER [--check]\n");
    return 2;
  }
  const fs::path folder = argv[1];
  const std::vector<GoldenCase> cases = attn::golden::all_cases();
  if (checks) {
    const int findings = check(folder, cases);
    std::printf("%zu cases, %d findings\n", cases.size(), findings);
    return findings == 0 ? 0 : 1;
  }
  fs::create_directories(folder);
  for (const GoldenCase& c : cases) {
    const std::string json = c.json();
    const Bytes data = c.data();
    write(folder / (c.name() + ".json"), json.data(), json.size());
    write(folder / (c.name() + ".bin"), data.data(), data.size());
  }
  std::printf("wrote %zu cases\n", cases.size());
  return 0;
}
