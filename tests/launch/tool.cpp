#include "launch/tool.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace ivme::testing {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::filesystem::path> folders_with(const std::string& word) {
  std::vector<std::filesystem::path> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc", error), end; !error && it != end;
       it.increment(error)) {
    const int pid = std::atoi(it->path().filename().c_str());
    if (pid <= 0 || pid == ::getpid()) continue;
    if (contents(it->path() / "environ").find(word) != std::string::npos) found.push_back(it->path());
  }
  return found;
}

}  // namespace

Tool::Tool(const std::vector<std::string>& arguments, const Setup& setup) : begin_(now()) {
  auto in = launch::make_pipe();
  auto out = launch::make_pipe();
  auto err = launch::make_pipe();
  std::vector<char*> argv = {const_cast<char*>(IVME_TOOL)};
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(in.reading.get(), 0);
    ::dup2(out.writing.get(), 1);
    ::dup2(setup.err >= 0 ? setup.err : setup.merged ? out.writing.get() : err.writing.get(), 2);
    for (const auto& variable : setup.environment) ::putenv(const_cast<char*>(variable.c_str()));
    ::execv(IVME_TOOL, argv.data());
    ::_exit(127);
  }
  if (::write(in.writing.get(), setup.input.data(), setup.input.size()) < 0)
    throw std::runtime_error("write");
  out_ = std::move(out.reading);
  err_ = std::move(err.reading);
}

Tool::~Tool() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Tool::send(int signal) const { ::kill(pid_, signal); }

bool Tool::read_some(double seconds) {
  pollfd polled[2] = {{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}};
  if (!out_.open() && !err_.open()) return false;
  if (::poll(polled, 2, static_cast<int>(seconds * 1000)) <= 0) return false;
  char block[65536];
  for (int i = 0; i < 2; ++i) {
    if (polled[i].revents == 0) continue;
    auto& pipe = i == 0 ? out_ : err_;
    const ssize_t n = ::read(pipe.get(), block, sizeof block);
    if (n > 0) {
      (i == 0 ? result_.out : result_.err).append(block, n);
    } else {
      pipe.close();
    }
  }
  return true;
}

bool Tool::shows(const std::string& text, double seconds) {
  const double end = now() + seconds;
  const auto found = [&] {
    return result_.out.find(text) != std::string::npos || result_.err.find(text) != std::string::npos;
  };
  while (!found() && now() < end && read_some(end - now())) continue;
  return found();
}

Result Tool::wait() {
  const double end = now() + 30;
  while (now() < end && read_some(end - now())) continue;
  if (now() >= end) ::kill(pid_, SIGKILL);
  int status = 0;
  rusage usage{};
  ::wait4(pid_, &status, 0, &usage);
  pid_ = -1;
  result_.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  result_.seconds = now() - begin_;
  result_.peak_kib = usage.ru_maxrss;
  return result_;
}

Result ivme(const std::vector<std::string>& arguments) { return Tool(arguments).wait(); }
Result ivme(const std::vector<std::string>& arguments, const Tool::Setup& setup) {
  return Tool(arguments, setup).wait();
}

std::string unique_word() {
  static int count = 0;
  return "ivme_launch_test_" + std::to_string(::getpid()) + "_" + std::to_string(++count);
}

int processes_with(const std::string& word) { return static_cast<int>(folders_with(word).size()); }

int process_named(const std::string& name, const std::string& word) {
  for (const auto& folder : folders_with(word)) {
    if (contents(folder / "comm") == name + "\n") return std::atoi(folder.filename().c_str());
  }
  return 0;
}

bool all_gone(const std::string& word, double seconds) {
  const double end = now() + seconds;
  while (processes_with(word) > 0) {
    if (now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) result.push_back(line);
  return result;
}

}  // namespace ivme::testing
