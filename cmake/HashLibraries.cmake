# ivme::md (libmd: SHA-256) and ivme::xxhash (xxHash). Neither comes with a CMake package, so the build and
# the installed package (ivmeConfig.cmake) look for them with this one file.
function(ivme_find_library NAME HEADER)
  string(TOUPPER ${NAME} UPPER)
  find_path(IVME_${UPPER}_INCLUDE_DIR ${HEADER} REQUIRED)
  find_library(IVME_${UPPER}_LIBRARY ${NAME} REQUIRED)
  mark_as_advanced(IVME_${UPPER}_INCLUDE_DIR IVME_${UPPER}_LIBRARY)
  if(NOT TARGET ivme::${NAME})
    add_library(ivme::${NAME} UNKNOWN IMPORTED GLOBAL)
    set_target_properties(ivme::${NAME} PROPERTIES IMPORTED_LOCATION "${IVME_${UPPER}_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${IVME_${UPPER}_INCLUDE_DIR}")
  endif()
endfunction()

ivme_find_library(md sha2.h)
ivme_find_library(xxhash xxhash.h)
