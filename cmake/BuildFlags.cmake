# Flags of every target of this project.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 99)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
# One folder for programs, one for libraries, so that build trees look alike to scripts.
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
  set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/lib")
endif()
# Nothing that is installed carries a run path; build-tree programs find the library by theirs.
set(CMAKE_SKIP_INSTALL_RPATH ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES AND PROJECT_IS_TOP_LEVEL)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

# Results must not depend on where the compiler finds a product next to a sum: engines that want a
# fused multiply-add ask for it by name.
add_compile_options(-ffp-contract=off -fno-math-errno)

add_compile_options(-Wall -Wextra -Wshadow -Wundef -Wcast-qual -Wvla)
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor;-Woverloaded-virtual>")
add_compile_options("$<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes;-Wmissing-prototypes>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 sees overlaps and overruns in inlined std::string code that are not there.
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-stringop-overflow>")
endif()
if(ATTN_C_WARNINGS_AS_ERRORS)
  add_compile_options(-Werror)
endif()

# Machine-independent objects: no path of the build machine in messages and debug data.
add_compile_options("-ffile-prefix-map=${CMAKE_SOURCE_DIR}/=")

if(ATTN_C_SANITIZE)
  add_compile_options(
    -fsanitize=${ATTN_C_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${ATTN_C_SANITIZE} -fno-sanitize-recover=all)
endif()
if(ATTN_C_COVERAGE)
  add_compile_options(--coverage -fprofile-update=atomic)
  add_link_options(--coverage)
endif()
if(ATTN_C_BUILD_FUZZERS AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Edge counters in every object; the engine itself is linked by the fuzz targets alone.
  add_compile_options(-fsanitize=fuzzer-no-link)
  add_link_options(-fsanitize=fuzzer-no-link)
endif()
