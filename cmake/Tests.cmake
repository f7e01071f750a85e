find_package(GTest REQUIRED)
include(GoogleTest)

add_custom_target(base_tests)  # those of the half without libtorch

# ivme_test(NAME SOURCES... [LIBRARIES ...]): one executable, one ctest entry per TEST in it.
function(ivme_test NAME)
  cmake_parse_arguments(T "" "TIMEOUT" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 60)
  endif()
  add_executable(${NAME} ${T_SOURCES})
  if(NOT "ivme" IN_LIST T_LIBRARIES AND NOT "examples_support" IN_LIST T_LIBRARIES)
    add_dependencies(base_tests ${NAME})
  endif()
  target_include_directories(${NAME} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${NAME} PRIVATE ${T_LIBRARIES} GTest::gtest_main GTest::gmock
    nlohmann_json::nlohmann_json ivme_warnings)
  target_compile_definitions(${NAME} PRIVATE IVME_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    IVME_TOOL="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/ivme")
  set_target_properties(${NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  gtest_discover_tests(${NAME} TEST_PREFIX ${NAME}. DISCOVERY_TIMEOUT 120 DISCOVERY_MODE PRE_TEST
    PROPERTIES TIMEOUT ${T_TIMEOUT} LABELS "${NAME}" ENVIRONMENT "IVME_XLA_CACHE=0")
endfunction()
