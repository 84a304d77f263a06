# How tests are declared. Every test has a label, a time limit and the skip code 77; a test that
# skips prints the reason as its last line. Results of inner test runners (GoogleTest, pytest) are
# left as JUnit XML under <build>/results, where tools/dev_results.py counts them.
#
#   attn_add_gtest(NAME LABELS label... SOURCES file... [LINK target...] [SHARDS n])
#   attn_add_gtest_run(NAME EXECUTABLE target LABELS label... FILTER pattern)
#   attn_add_script_test(NAME LABELS label... COMMAND command...)
#   attn_add_pytest(NAME LABELS label... PATHS path... [NEEDS module...])
#   attn_add_golden(LANGUAGE COMMAND command... [ENVIRONMENT variable=value...])
#     the golden cases (docs/golden-cases.md) by one language's runner, which gets their folder
#   attn_add_guide(LANGUAGE PAGE [BUILD "command line"...] [RUN "command line"] [ENVIRONMENT ...])
#     the programs of a guide (tests/tools/run_guide.py)
set(ATTN_TEST_RESULTS "${PROJECT_BINARY_DIR}/results")
file(MAKE_DIRECTORY "${ATTN_TEST_RESULTS}")
set(ATTN_TEST_TIMEOUT 1200)
set(ATTN_GOLDEN_CASES "${PROJECT_SOURCE_DIR}/tests/golden/cases")
set(ATTN_GOLDEN_WORK "${PROJECT_BINARY_DIR}/golden")

set(ATTN_TEST_ENVIRONMENT
  "ASAN_OPTIONS=strict_string_checks=1:detect_stack_use_after_return=1:check_initialization_order=1"
  "UBSAN_OPTIONS=print_stacktrace=1"
  "TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1"
  "PYTHONDONTWRITEBYTECODE=1")

function(attn_set_test_properties name labels)
  set_tests_properties(${name} PROPERTIES
    LABELS "${labels}"
    TIMEOUT ${ATTN_TEST_TIMEOUT}
    SKIP_RETURN_CODE 77
    ENVIRONMENT "${ATTN_TEST_ENVIRONMENT};${ARGN}")
endfunction()

function(attn_add_gtest_run name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "EXECUTABLE;FILTER" "LABELS;ENVIRONMENT")
  add_test(NAME ${name} COMMAND ${ARG_EXECUTABLE} "--gtest_filter=${ARG_FILTER}")
  attn_set_test_properties(${name} "${ARG_LABELS}"
    "GTEST_OUTPUT=xml:${ATTN_TEST_RESULTS}/${name}.xml" ${ARG_ENVIRONMENT})
endfunction()

function(attn_add_gtest name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "SHARDS;FILTER" "LABELS;SOURCES;LINK")
  if(NOT ARG_FILTER)
    set(ARG_FILTER "*")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest GTest::gtest_main)
  target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests")
  # Most of a test file is assertions: optimising them, or watching them for undefined behaviour,
  # costs minutes and gains nothing. What is slow (reference, matrix) stands in libraries of its
  # own.
  if(ATTN_C_SANITIZE)
    target_compile_options(${name} PRIVATE -O0 -fno-sanitize=undefined)
  else()
    target_compile_options(${name} PRIVATE "$<$<CONFIG:Release>:-O1>")
  endif()
  target_compile_definitions(${name} PRIVATE
    ATTN_TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}" ATTN_TEST_BINARY_DIR="${PROJECT_BINARY_DIR}")
  if(NOT ARG_SHARDS)
    attn_add_gtest_run(${name} EXECUTABLE ${name} LABELS "${ARG_LABELS}" FILTER "${ARG_FILTER}")
    return()
  endif()
  # GoogleTest deals its cases out to the shards; each shard is a test of its own for CTest.
  math(EXPR last "${ARG_SHARDS} - 1")
  foreach(shard RANGE ${last})
    attn_add_gtest_run(${name}.${shard} EXECUTABLE ${name} LABELS "${ARG_LABELS}"
      FILTER "${ARG_FILTER}"
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${ARG_SHARDS}" "GTEST_SHARD_INDEX=${shard}")
  endforeach()
endfunction()

function(attn_add_script_test name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "LABELS;COMMAND;ENVIRONMENT")
  add_test(NAME ${name} COMMAND ${ARG_COMMAND})
  attn_set_test_properties(${name} "${ARG_LABELS}" ${ARG_ENVIRONMENT})
endfunction()

function(attn_add_pytest name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "LABELS;PATHS;NEEDS;ENVIRONMENT")
  list(JOIN ARG_NEEDS "," needs)
  attn_add_script_test(${name}
    LABELS "${ARG_LABELS}"
    ENVIRONMENT ${ARG_ENVIRONMENT}
    COMMAND ${Python3_EXECUTABLE} "${PROJECT_SOURCE_DIR}/tests/tools/run_pytest.py"
      "--needs=${needs}" "--junit=${ATTN_TEST_RESULTS}/${name}.xml" ${ARG_PATHS})
endfunction()

function(attn_add_golden language)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "COMMAND;ENVIRONMENT")
  list(POP_FRONT ARG_COMMAND program)
  if(TARGET ${program})
    set(program $<TARGET_FILE:${program}>)
  endif()
  # A preloaded library comes before the sanitizers' own, which they refuse.
  set(scribbler "")
  if(NOT ATTN_C_SANITIZE)
    set(scribbler --scribbler $<TARGET_FILE:golden_scribbler>)
  endif()
  attn_add_script_test(golden.${language}
    LABELS bindings
    ENVIRONMENT ${ARG_ENVIRONMENT}
    COMMAND ${Python3_EXECUTABLE} "${PROJECT_SOURCE_DIR}/tests/golden/run_golden.py"
      --language ${language} --cases "${ATTN_GOLDEN_CASES}" --work "${ATTN_GOLDEN_WORK}"
      --junit "${ATTN_TEST_RESULTS}/golden.${language}.xml" ${scribbler}
      -- ${program} ${ARG_COMMAND})
endfunction()

function(attn_add_guide language page)
  cmake_parse_arguments(PARSE_ARGV 2 ARG "" "RUN" "BUILD;ENVIRONMENT")
  set(commands "")
  foreach(command IN LISTS ARG_BUILD)
    list(APPEND commands "--build=${command}")
  endforeach()
  if(ARG_RUN)
    list(APPEND commands "--run=${ARG_RUN}")
  endif()
  attn_add_script_test(guide.${page} LABELS examples bindings
    ENVIRONMENT ${ARG_ENVIRONMENT}
    COMMAND ${Python3_EXECUTABLE} "${PROJECT_SOURCE_DIR}/tests/tools/run_guide.py"
      --guide "${PROJECT_SOURCE_DIR}/docs/${page}.md" --language ${language}
      --work "${CMAKE_CURRENT_BINARY_DIR}/guide_${page}" ${commands})
endfunction()
