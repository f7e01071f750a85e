#pragma once
#include <string>

namespace ivme::launch {

// The file to execute for the program's name, found as a shell finds it: a name with a '/' is a path, any
// other is looked up in PATH. Throws UsageError when it is not there, is a directory, or is not executable.
std::string find_program(const std::string& name);

}  // namespace ivme::launch
