# The headers of JSON for Modern C++, which write what describe gives. Nothing is linked.
find_path(NLOHMANN_JSON_INCLUDE_DIR nlohmann/json.hpp)
mark_as_advanced(NLOHMANN_JSON_INCLUDE_DIR)
if(NOT NLOHMANN_JSON_INCLUDE_DIR)
  message(FATAL_ERROR "JSON for Modern C++'s headers are missing (Debian: nlohmann-json3-dev); "
                      "set NLOHMANN_JSON_INCLUDE_DIR to the folder that holds nlohmann/json.hpp")
endif()
