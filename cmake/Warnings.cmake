add_library(ivme_warnings INTERFACE)
target_compile_options(ivme_warnings INTERFACE -Wall -Wextra -Wshadow)
# GCC 12 sees overlaps in "text" + std::string that cannot be (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(ivme_warnings INTERFACE -Wno-restrict)
endif()
