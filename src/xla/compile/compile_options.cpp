#include "xla/compile/compile_options.h"

#include <cstdint>

namespace ivme::xla {
namespace {

// Numbers of the fields.
constexpr uint64_t executable_build_options = 3;
constexpr uint64_t num_replicas_field = 4, num_partitions_field = 5, use_spmd_partitioning_field = 6;

// Protocol buffers, https://protobuf.dev/programming-guides/encoding
void add_varint(std::string& bytes, uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>((value & 0x7f) | 0x80);
  bytes += static_cast<char>(value);
}

void add_number(std::string& bytes, uint64_t field, uint64_t value) {
  add_varint(bytes, field << 3);
  add_varint(bytes, value);
}

void add_message(std::string& bytes, uint64_t field, const std::string& message) {
  add_varint(bytes, field << 3 | 2);
  add_varint(bytes, message.size());
  bytes += message;
}

}  // namespace

std::string compile_options(int num_partitions) {
  std::string build_options;
  add_number(build_options, num_replicas_field, 1);
  add_number(build_options, num_partitions_field, static_cast<uint64_t>(num_partitions));
  if (num_partitions > 1) add_number(build_options, use_spmd_partitioning_field, 1);
  std::string options;
  add_message(options, executable_build_options, build_options);
  return options;
}

}  // namespace ivme::xla
