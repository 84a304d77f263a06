# attn_add_fuzz_target(NAME SOURCES file... [LINK target...])
#
# A fuzz target is a function LLVMFuzzerTestOneInput; its corpus lies in tests/fuzz/corpus/NAME.
# With clang and ATTN_C_BUILD_FUZZERS it is linked with libFuzzer, which explores. In every other
# build it is linked with a main function that replays the corpus, and that is a test.
function(attn_add_fuzz_target name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "SOURCES;LINK")
  set(corpus "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${name}")
  if(ATTN_C_BUILD_FUZZERS AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    add_executable(${name} ${ARG_SOURCES})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${name} ${ARG_SOURCES} "${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cc")
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_LINK})
  if(ATTN_C_BUILD_TESTS)
    attn_add_script_test(fuzz.${name}.corpus LABELS fuzz COMMAND ${name} "${corpus}")
  endif()
endfunction()
