# What `cmake --install` puts in place: headers, both libraries, the tool, and the CMake package `ivme`.
# A project that adds ivme with add_subdirectory installs it only with -DIVME_INSTALL=ON.
option(IVME_INSTALL "Install ivme together with the project" ${PROJECT_IS_TOP_LEVEL})
if(NOT IVME_INSTALL)
  return()
endif()

include(CMakePackageConfigHelpers)
set(IVME_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ivme)
install(TARGETS ivme_base ivme EXPORT ivmeTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/ivme DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT ivmeTargets NAMESPACE ivme:: DESTINATION ${IVME_PACKAGE_DIR})
if(TARGET ivme_tool)
  install(TARGETS ivme_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

configure_package_config_file(cmake/ivmeConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/ivmeConfig.cmake
  INSTALL_DESTINATION ${IVME_PACKAGE_DIR} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/ivmeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ivmeConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/ivmeConfigVersion.cmake
  cmake/HashLibraries.cmake DESTINATION ${IVME_PACKAGE_DIR})
