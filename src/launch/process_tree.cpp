#include "launch/process_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "launch/file_descriptor.h"

namespace ivme::launch {
namespace {

// Field 4 of /proc/PID/stat; 0 when the process has gone.
pid_t parent_of(pid_t pid) {
  const FileDescriptor file(::open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  char text[512];
  const ssize_t size = file.open() ? ::read(file.get(), text, sizeof text - 1) : 0;
  if (size <= 0) return 0;
  text[size] = '\0';
  const char* after_name = std::strrchr(text, ')');  // the name itself may hold anything
  int parent = 0;
  if (after_name == nullptr || std::sscanf(after_name, ") %*c %d", &parent) != 1) return 0;
  return parent;
}

}  // namespace

std::vector<pid_t> descendants(pid_t ancestor) {
  std::multimap<pid_t, pid_t> children;
  DIR* proc = ::opendir("/proc");
  if (proc == nullptr) return {};
  while (const dirent* entry = ::readdir(proc)) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid > 0) children.emplace(parent_of(pid), pid);
  }
  ::closedir(proc);
  std::vector<pid_t> found;
  std::vector<pid_t> open = {ancestor};
  while (!open.empty()) {
    const auto [begin, end] = children.equal_range(open.back());
    open.pop_back();
    for (auto it = begin; it != end; ++it) {
      found.push_back(it->second);
      open.push_back(it->second);
    }
  }
  return found;
}

}  // namespace ivme::launch
