#include "support/call_site.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>
#include <unwind.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "support/source_lines.h"

namespace ivme {
namespace {

using Frames = std::vector<uintptr_t>;

constexpr size_t most_frames = 48;     // that are kept
constexpr size_t most_walked = 512;    // a recursion of the user's may be endless
constexpr uintptr_t forward_mark = 0;  // the frames behind it are of the forward pass

// --- taking -----------------------------------------------------------------------------------------------

bool is_library(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  constexpr std::string_view libraries[] = {"libtorch", "libc10",     "libstdc++", "libc++",
                                            "libc.",    "libgcc_s",   "libm.",     "libgomp.",
                                            "libiomp",  "libpthread", "ld-linux",  "linux-vdso"};
  return std::ranges::any_of(libraries, [&](std::string_view library) { return name.starts_with(library); });
}

struct Range {
  uintptr_t begin, end;
};

// Where libtorch and the libraries below it are loaded.
std::vector<Range> find_libraries() {
  std::vector<Range> ranges;
  const auto add = [](dl_phdr_info* object, size_t, void* to) {
    if (!object->dlpi_name || !is_library(object->dlpi_name)) return 0;
    for (int i = 0; i < object->dlpi_phnum; ++i) {
      const auto& segment = object->dlpi_phdr[i];
      if (segment.p_type != PT_LOAD || !(segment.p_flags & PF_X)) continue;
      const uintptr_t begin = object->dlpi_addr + segment.p_vaddr;
      static_cast<std::vector<Range>*>(to)->push_back({begin, begin + segment.p_memsz});
    }
    return 0;
  };
  dl_iterate_phdr(add, &ranges);
  return ranges;
}

bool in_library(uintptr_t instruction) {
  static const std::vector<Range>& libraries = *new std::vector(find_libraries());
  return std::ranges::any_of(
      libraries, [&](const Range& range) { return instruction >= range.begin && instruction < range.end; });
}

struct Walk {
  Frames frames;
  size_t walked = 0;
};

_Unwind_Reason_Code add_frame(_Unwind_Context* context, void* to) {
  Walk& walk = *static_cast<Walk*>(to);
  int before = 0;
  uintptr_t instruction = _Unwind_GetIPInfo(context, &before);
  if (!before) --instruction;  // a return address: the call is the instruction before
  if (!in_library(instruction)) walk.frames.push_back(instruction);
  return ++walk.walked < most_walked && walk.frames.size() < most_frames ? _URC_NO_REASON : _URC_END_OF_STACK;
}

// --- keeping ----------------------------------------------------------------------------------------------

struct Hash {
  size_t operator()(const Frames& frames) const {
    size_t hash = frames.size();
    for (uintptr_t frame : frames) hash = (hash ^ frame) * 0x9e3779b97f4a7c15 + (hash >> 29);
    return hash;
  }
};

struct Kept {
  std::mutex mutex;
  std::unordered_map<Frames, uint32_t, Hash> indices;
  std::deque<const Frames*> frames;  // by index - 1
  std::unordered_map<uint32_t, std::string> texts;
};
Kept& kept() {
  static auto* one = new Kept;  // nodes may outlive static objects
  return *one;
}

Frames frames_of(uint32_t index) {
  if (index == 0) return {};
  std::lock_guard lock(kept().mutex);
  return *kept().frames[index - 1];
}

// --- telling ----------------------------------------------------------------------------------------------

std::string normal(const std::string& path) {
  return std::filesystem::path(path).lexically_normal().string();
}

// The folder of ivme's sources, if ivme has debug information.
std::string find_sources() {
  constexpr std::string_view mine = "support/call_site.cpp";
  for (const SourceFrame& frame : source_frames(reinterpret_cast<uintptr_t>(&add_frame))) {
    const std::string path = normal(frame.file);
    if (path.ends_with(mine)) return path.substr(0, path.size() - mine.size());
  }
  return {};
}

// By the first namespace of a mangled name.
bool is_library_function(std::string_view mangled) {
  if (mangled == "_start") return true;
  if (!mangled.starts_with("_Z")) return false;
  mangled.remove_prefix(std::min(mangled.find_first_not_of("ZNKVROTLv", 2), mangled.size()));
  constexpr std::string_view spaces[] = {"4ivme", "2at", "3c10", "5torch",    "6caffe2",
                                         "St",    "Sa",  "Ss",   "9__gnu_cxx"};
  return std::ranges::any_of(spaces, [&](std::string_view space) { return mangled.starts_with(space); });
}

bool is_library_source(const std::string& path, uintptr_t instruction) {
  static const std::string& sources = *new std::string(find_sources());
  if (!sources.empty() && path.starts_with(sources)) {
    // A relative path may be that of another project's; a unit test beside its source is a program of its
    // own.
    const bool relative = std::filesystem::path(path).is_relative();
    return !path.ends_with("_test.cpp") && (!relative || is_library_function(symbol_at(instruction).name));
  }
  constexpr std::string_view headers[] = {"/include/ivme/", "/include/torch/",  "/include/ATen/",
                                          "/include/c10/",  "/include/caffe2/", "/include/c++/",
                                          "/usr/include/",  "/lib/gcc/"};
  return std::ranges::any_of(headers,
                             [&](std::string_view header) { return path.find(header) != path.npos; });
}

std::string demangled(const std::string& name) {
  int status = 0;
  std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && text ? text.get() : name;
}

std::string function_text(const Symbol& symbol, uintptr_t instruction) {
  char offset[32];
  std::snprintf(offset, sizeof offset, "+0x%zx", static_cast<size_t>(instruction - symbol.begin));
  std::string text = demangled(symbol.name) + offset;
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(instruction), &info) && info.dli_fname)
    text += " (" + std::filesystem::path(info.dli_fname).filename().string() + ")";
  return text;
}

// "" where the frame is not the user's.
std::string text_of_frame(uintptr_t instruction) {
  const std::vector<SourceFrame> sources = source_frames(instruction);
  for (const SourceFrame& source : sources) {
    const std::filesystem::path path = normal(source.file);
    if (!is_library_source(path.string(), instruction))
      return path.filename().string() + ":" + std::to_string(source.line);
  }
  if (!sources.empty()) return {};
  const Symbol symbol = symbol_at(instruction);
  return symbol.name.empty() || is_library_function(symbol.name) ? "" : function_text(symbol, instruction);
}

std::string find_text(const Frames& frames) {
  const char* pass = "";
  for (uintptr_t frame : frames) {
    if (frame == forward_mark) pass = " (backward)";
    if (std::string text = frame == forward_mark ? "" : text_of_frame(frame); !text.empty())
      return text + pass;
  }
  return {};
}

Frames walk_stack() {
  Walk walk;
  walk.frames.reserve(most_frames);
  _Unwind_Backtrace(add_frame, &walk);
  return std::move(walk.frames);
}

}  // namespace

CallSite CallSite::here() { return keep(walk_stack()); }

CallSite CallSite::in_backward_of(const CallSite& forward) {
  Frames frames = walk_stack();
  const Frames more = frames_of(forward.index_);
  frames.push_back(forward_mark);
  frames.insert(frames.end(), more.begin(), more.end());
  return keep(std::move(frames));
}

CallSite CallSite::keep(Frames frames) {
  CallSite site;
  Kept& all = kept();
  std::lock_guard lock(all.mutex);
  const auto [found, is_new] =
      all.indices.emplace(std::move(frames), static_cast<uint32_t>(all.frames.size() + 1));
  if (is_new) all.frames.push_back(&found->first);
  site.index_ = found->second;
  return site;
}

std::string CallSite::text() const {
  if (index_ == 0) return {};
  Kept& all = kept();
  {
    std::lock_guard lock(all.mutex);
    if (auto known = all.texts.find(index_); known != all.texts.end()) return known->second;
  }
  const std::string text = find_text(frames_of(index_));
  std::lock_guard lock(all.mutex);
  return all.texts[index_] = text;
}

std::string CallSite::where() const {
  const std::string told = text();
  return told.empty() ? told : " at " + told;
}

}  // namespace ivme
