#pragma once
#include <string>

namespace ivme::xla {

// XLA's CompileOptionsProto (xla/pjrt/proto/compile_options.proto), serialized: one replica, on the first
// `num_partitions` devices; above one, the compiler splits the program as its sharding annotations say
// (GSPMD).
std::string compile_options(int num_partitions);

}  // namespace ivme::xla
