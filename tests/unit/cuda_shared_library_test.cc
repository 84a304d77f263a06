// Opening a library from a list of places.
#include <gtest/gtest.h>

#include <string>

#include "cuda/shared_library.h"

namespace attn::cuda {
namespace {

TEST(SharedLibrary, TakesTheFirstThatOpens) {
  const SharedLibrary library = SharedLibrary::open(
      {{"/nowhere/libm.so.6", "first"}, {"libm.so.6", "second"}, {"libc.so.6", "third"}});
  ASSERT_TRUE(library.is_open());
  EXPECT_EQ(library.path(), "libm.so.6");
  EXPECT_NE(library.symbol("cos"), nullptr);
  EXPECT_EQ(library.symbol("no_such_function"), nullptr);
  EXPECT_EQ(text_of(library.failed()), "first: /nowhere/libm.so.6");
  EXPECT_NE(file_of_symbol(library.symbol("cos")).find("libm.so.6"), std::string::npos);
}

TEST(SharedLibrary, NamesEveryPlaceThatWasTried) {
  const SharedLibrary library = SharedLibrary::open({{"/nowhere/a.so", "option"},
                                                     {"/proc/self/status", "option"},
                                                     {"libattn_none.so.1", "already loaded", true},
                                                     {"libattn_none.so.2", "already loaded", true},
                                                     {"libattn_none.so.1", "system loader"}});
  EXPECT_FALSE(library.is_open());
  EXPECT_EQ(library.symbol("cos"), nullptr);
  const std::string text = text_of(library.failed());
  EXPECT_EQ(text.find("option: /nowhere/a.so, /proc/self/status ("), 0u) << text;
  EXPECT_NE(text.find("); already loaded: libattn_none.so.1, libattn_none.so.2; "
                      "system loader: libattn_none.so.1"),
            std::string::npos)
      << text;
  EXPECT_EQ(text_of({}), "");
}

TEST(SharedLibrary, OnlyLoadedOpensNothing) {
  EXPECT_TRUE(SharedLibrary::open({{"libc.so.6", "already loaded", true}}).is_open());
}

TEST(SharedLibrary, FoldersAroundThisLibrary) {
  const auto folders = python_package_folders();
  ASSERT_EQ(folders.size(), 2u);
  EXPECT_EQ(folders[1].find(folders[0] + "/"), 0u);
  EXPECT_EQ(file_of_symbol(nullptr), "");
}

}  // namespace
}  // namespace attn::cuda
