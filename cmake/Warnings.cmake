add_library(ivme_warnings INTERFACE)
target_compile_options(ivme_warnings INTERFACE -Wall -Wextra -Wshadow)
