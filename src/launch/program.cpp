#include "launch/program.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "launch/usage_error.h"
#include "support/nearest.h"

namespace ivme::launch {
namespace fs = std::filesystem;
namespace {

bool executable(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

std::string remedy_for_missing(const fs::path& path) {
  std::vector<std::string> names;
  std::error_code error;
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  for (fs::directory_iterator it(folder, error), end; !error && it != end && names.size() < 1000;
       it.increment(error)) {
    if (executable(it->path())) names.push_back(it->path().filename());
  }
  if (const auto near = nearest(path.filename().string(), names)) return (folder / *near).string();
  return "the path of the program that was built, for example ./build/train";
}

std::string check_path(const std::string& name) {
  std::error_code error;
  if (!fs::exists(name, error)) {
    throw UsageError("the program '" + name + "' is not there", remedy_for_missing(name));
  }
  if (fs::is_directory(name, error)) {
    throw UsageError("'" + name + "' is a directory, not a program", "a program in it: " + name + "/NAME");
  }
  if (!executable(name)) {
    throw UsageError(
        "'" + name + "' is not executable",
        "chmod +x " + name + ", or name the program that runs it, such as sh or python3, before it");
  }
  return name;
}

}  // namespace

std::string find_program(const std::string& name) {
  if (name.empty()) throw UsageError("the name of the program is empty", "ivme launch -n 2 ./train");
  if (name.find('/') != std::string::npos) return check_path(name);
  const char* variable = std::getenv("PATH");
  std::istringstream path(variable ? variable : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(path, folder, ':');) {
    const fs::path candidate = fs::path(folder.empty() ? "." : folder) / name;
    if (executable(candidate)) return candidate.string();
  }
  std::error_code ignored;
  if (fs::exists(name, ignored)) {
    throw UsageError("no program '" + name + "' is on PATH, though a file of this name is in this folder",
                     "./" + name);
  }
  throw UsageError("no program '" + name + "' is on PATH", remedy_for_missing(name));
}

}  // namespace ivme::launch
