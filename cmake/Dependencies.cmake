# libtorch from the wheel that ./dev setup installed, or from TORCH_DIR (a libtorch, or a wheel's torch folder).
if(DEFINED ENV{TORCH_DIR})
  list(APPEND CMAKE_PREFIX_PATH "$ENV{TORCH_DIR}")
elseif(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/.venv)
  file(GLOB IVME_VENV_TORCH ${CMAKE_CURRENT_SOURCE_DIR}/.venv/lib/python*/site-packages/torch)
  list(APPEND CMAKE_PREFIX_PATH ${IVME_VENV_TORCH})
endif()
# Debian packages that ./dev setup unpacked where there is no root.
if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/.deps/usr)
  list(APPEND CMAKE_PREFIX_PATH ${CMAKE_CURRENT_SOURCE_DIR}/.deps/usr)
endif()

# Else a project that adds this folder could not see the targets found here.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)
find_package(Torch 2.13 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(Threads REQUIRED)
include(cmake/HashLibraries.cmake)
if(IVME_BUILD_TESTS OR IVME_BUILD_EXAMPLES)
  find_package(ZLIB REQUIRED)
endif()
set(IVME_BASE_LIBRARIES Threads::Threads ivme::md ivme::xxhash)

# A libtorch for CUDA brings NCCL. Its headers lie in wheels beside torch, else in the CUDA toolkit.
if(TARGET torch_cuda)
  file(GLOB IVME_NVIDIA_INCLUDE ${TORCH_INSTALL_PREFIX}/../nvidia/*/include)
  find_path(IVME_NCCL_INCLUDE_DIR nccl.h HINTS ${IVME_NVIDIA_INCLUDE})
  find_path(IVME_CUDA_INCLUDE_DIR cuda_runtime_api.h HINTS ${CUDA_INCLUDE_DIRS} ${IVME_NVIDIA_INCLUDE})
endif()

# The header of the PJRT C interface lies in the wheel of a plugin, which ./dev setup installs.
file(GLOB IVME_PJRT_WHEELS ${CMAKE_CURRENT_SOURCE_DIR}/.venv/lib/python*/site-packages)
find_path(IVME_PJRT_INCLUDE_DIR pjrt_c_api.h HINTS ${IVME_PJRT_WHEELS}/xla_plugins/xla_cpu_pjrt/include)
mark_as_advanced(IVME_PJRT_INCLUDE_DIR)

if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  find_program(IVME_CCACHE ccache)
  mark_as_advanced(IVME_CCACHE)
  if(IVME_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${IVME_CCACHE})
  endif()
endif()
