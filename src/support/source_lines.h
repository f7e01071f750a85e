#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ivme {

// One function that an instruction belongs to, and the line in it.
struct SourceFrame {
  std::string file;  // as the compiler was given it
  int line = 0;
};
// The function that contains the instruction, and before it those that were inlined there, innermost first.
// Empty where there is no debug information (GCC's -g1 is enough), or ivme was built without libbacktrace.
// The first call reads the symbols of all loaded objects: tens of milliseconds. For any thread.
std::vector<SourceFrame> source_frames(uintptr_t instruction);

struct Symbol {
  std::string name;  // mangled; empty where the object has none for it
  uintptr_t begin = 0;
};
// The function that contains the instruction, by the symbols of its object file.
Symbol symbol_at(uintptr_t instruction);

}  // namespace ivme
