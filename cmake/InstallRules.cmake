# What `cmake --install` lays out: library, headers, CMake package, pkg-config file, licence.
include(CMakePackageConfigHelpers)

set_target_properties(attn_c PROPERTIES EXPORT_NAME attn_c)
install(TARGETS attn_c EXPORT attn_c
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT attn_c)
install(FILES include/attn_c.h include/attn_c_host.h
    include/attn_c.hpp include/attn_c_objects.hpp include/attn_c_host.hpp
  DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT attn_c)
install(FILES LICENSE THIRD_PARTY_NOTICES.md
  DESTINATION "${CMAKE_INSTALL_DATADIR}/licenses/attn_c" COMPONENT attn_c)

set(package_folder "${CMAKE_INSTALL_LIBDIR}/cmake/attn_c")
install(EXPORT attn_c NAMESPACE AttnC:: FILE attn_c-targets.cmake
  DESTINATION "${package_folder}" COMPONENT attn_c)
configure_package_config_file(cmake/attn_c-config.cmake.in
  "${PROJECT_BINARY_DIR}/attn_c-config.cmake" INSTALL_DESTINATION "${package_folder}"
  NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
# Before 1.0 every minor version may break the ABI.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/attn_c-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES
    "${PROJECT_BINARY_DIR}/attn_c-config.cmake"
    "${PROJECT_BINARY_DIR}/attn_c-config-version.cmake"
  DESTINATION "${package_folder}" COMPONENT attn_c)

# Relative, so that an installed tree may be moved.
file(RELATIVE_PATH prefix_from_pkgconfig "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
configure_file(cmake/attn_c.pc.in "${PROJECT_BINARY_DIR}/attn_c.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/attn_c.pc"
  DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig" COMPONENT attn_c)
