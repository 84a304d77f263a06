// The pack of ready kernels: every entry is found, and no damage is mistaken for a kernel.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "cuda/cubin_pack.h"

namespace attn::cuda {
namespace {

using Entries = std::vector<std::pair<std::string, std::string>>;

uint64_t fnv(const std::string& text) {
  uint64_t value = 14695981039346656037ull;
  for (unsigned char c : text) value = (value ^ c) * 1099511628211ull;
  return value;
}

void append(std::string& out, uint64_t number) {
  out.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// The file's bytes, written from the description of the layout in cubin_pack.h.
std::string pack_of(const Entries& entries) {
  size_t offset = 16;
  for (const auto& [key, content] : entries) offset += 32 + key.size();
  std::string out = "ATTNPAK1", contents;
  append(out, entries.size());
  for (const auto& [key, content] : entries) {
    append(out, key.size());
    append(out, offset + contents.size());
    append(out, content.size());
    append(out, fnv(content));
    out += key;
    contents += content;
  }
  return out + contents;
}

class CubinPackTest : public testing::Test {
 protected:
  ~CubinPackTest() override { std::filesystem::remove(path_); }
  CubinPack open(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    return CubinPack(path_);
  }
  const std::string path_ = std::string(ATTN_TEST_BINARY_DIR) + "/" +
                            testing::UnitTest::GetInstance()->current_test_info()->name() + ".pack";
  const Entries entries_ = {{"sm_80 one", "content of one"},
                            {"sm_90a two", std::string(1000, '\0')},
                            {"sm_89 three", "3"}};
};

TEST_F(CubinPackTest, EveryEntryIsFound) {
  const CubinPack pack = open(pack_of(entries_));
  EXPECT_EQ(pack.size(), 3u);
  for (const auto& [key, content] : entries_) EXPECT_EQ(pack.find(key), content) << key;
  EXPECT_EQ(pack.find("sm_80 two"), std::nullopt);
  EXPECT_EQ(pack.find(""), std::nullopt);
}

TEST_F(CubinPackTest, NoFileIsAnEmptyPack) {
  const CubinPack pack(path_ + ".missing");
  EXPECT_EQ(pack.size(), 0u);
  EXPECT_EQ(pack.find("sm_80 one"), std::nullopt);
  EXPECT_EQ(CubinPack("").size(), 0u);
  EXPECT_EQ(CubinPack(ATTN_TEST_BINARY_DIR).find("sm_80 one"), std::nullopt) << "a folder";
}

// Whatever byte is damaged and wherever the file is cut: the right content, or none.
TEST_F(CubinPackTest, DamageIsAMiss) {
  const std::string good = pack_of(entries_);
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    for (const int flip : {0x01, 0x80, 0xff}) {
      bad[i] = static_cast<char>(good[i] ^ flip);
      const CubinPack pack = open(bad);
      int found = 0;
      for (const auto& [key, content] : entries_) {
        const auto got = pack.find(key);
        if (got) {
          EXPECT_EQ(*got, content) << "byte " << i;
        }
        found += got.has_value();
      }
      // A wrong count alone, bytes 8 to 15, loses no content.
      if (i < 8 || i >= 16) {
        EXPECT_LT(found, 3) << "byte " << i;
      }
    }
    const CubinPack pack = open(good.substr(0, i));
    int found = 0;
    for (const auto& [key, content] : entries_) {
      const auto got = pack.find(key);
      if (got) {
        EXPECT_EQ(*got, content) << i << " bytes";
      }
      found += got.has_value();
    }
    EXPECT_LT(found, 3) << i << " bytes";
  }
}

// A file that was replaced or removed after its index was read.
TEST_F(CubinPackTest, FileThatChangesIsAMiss) {
  const CubinPack pack = open(pack_of(entries_));
  open("something else, and shorter");
  EXPECT_EQ(pack.find("sm_80 one"), std::nullopt);
  std::filesystem::remove(path_);
  EXPECT_EQ(pack.find("sm_80 one"), std::nullopt);
}

TEST(CubinPackKey, NamesTargetSourcesAndVariant) {
  const std::string key = pack_key("sm_90a", "softmax/attention_mma.cu HEAD_SIZE=64");
  EXPECT_EQ(key, "sm_90a " + kernel_sources_digest() + " softmax/attention_mma.cu HEAD_SIZE=64");
  EXPECT_EQ(kernel_sources_digest().size(), 16u);
}

}  // namespace
}  // namespace attn::cuda
