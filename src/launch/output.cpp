#include "launch/output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <limits>
#include <utility>

namespace ivme::launch {
namespace {

constexpr size_t longest_held = 1 << 20;
constexpr size_t longest_remembered = 1000;

bool same_file(int a, int b) {
  struct stat x, y;
  return ::fstat(a, &x) == 0 && ::fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// libtorch prints one line for each frame below its errors, which would push the reason out of a report.
bool is_of_a_backtrace(std::string_view line) {
  return line.starts_with("frame #") || line.starts_with("Exception raised from ");
}

}  // namespace

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Sink::put(std::string_view text) {
  if (text.empty() || broken_) return;
  pending_ += text;
  last_ = text.back();
}

void Sink::write_some() {
  // A pipe that poll calls writable takes a page without blocking, and no more for certain.
  const ssize_t n =
      ::write(fd_, pending_.data() + written_, std::min<size_t>(pending_.size() - written_, 4096));
  if (n >= 0) {
    written_ += n;
    if (!waiting() || written_ > 128 * 1024) pending_.erase(0, std::exchange(written_, 0));
  } else if (errno != EINTR && errno != EAGAIN) {
    broken_ = true;
    drop();
  }
}

Sinks standard_sinks() {
  auto out = std::make_shared<Sink>(1);
  return {out, same_file(1, 2) ? out : std::make_shared<Sink>(2)};
}

OutputStream::OutputStream(FileDescriptor pipe, std::shared_ptr<Sink> sink, std::string prefix,
                           FileDescriptor log)
    : pipe_(std::move(pipe)), sink_(std::move(sink)), prefix_(std::move(prefix)), log_(std::move(log)) {}

void OutputStream::read_some() {
  char block[65536];
  const ssize_t n = ::read(pipe_.get(), block, sizeof block);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  // As without a launcher: a program whose output nobody reads any more is told so by SIGPIPE.
  const bool unread = sink_ && sink_->broken() && prefix_.empty();
  if (n <= 0 || unread) return close();
  const std::string_view bytes(block, n);
  last_read_ = steady_seconds();
  log(bytes);
  remember(bytes);
  if (sink_) show(bytes);
}

void OutputStream::show(std::string_view bytes) {
  size_t end = bytes.find_last_of(prefix_.empty() ? "\r\n" : "\n");
  if (end == std::string_view::npos) {
    held_ += bytes;
  } else {
    if (bytes[end] == '\r') end = bytes.size() - 1;  // a progress bar, which may not lag
    held_ += bytes.substr(0, end + 1);
    show_lines(held_);
    held_ = bytes.substr(end + 1);
  }
  if (held_.size() > longest_held) {
    if (!prefix_.empty()) held_ += '\n';
    show_lines(held_);
    held_.clear();
  }
}

void OutputStream::show_lines(std::string_view lines) {
  if (prefix_.empty()) return sink_->put(lines);
  while (!lines.empty()) {
    const size_t length = lines.find('\n') + 1;
    if (sink_->in_mid_line()) sink_->put("\n");
    sink_->put(prefix_ + std::string(lines.substr(0, length)));
    lines.remove_prefix(length);
  }
}

double OutputStream::unfinished_until() const {
  const bool unfinished = sink_ && prefix_.empty() && !held_.empty();
  return unfinished ? last_read_ + 0.1 : std::numeric_limits<double>::infinity();
}

void OutputStream::show_unfinished() {
  sink_->put(held_);
  held_.clear();
}

void OutputStream::remember(std::string_view bytes) {
  for (;;) {
    const size_t end = bytes.find_first_of("\r\n");
    const std::string_view part = bytes.substr(0, end);
    line_ += part.substr(0, longest_remembered - std::min(longest_remembered, line_.size()));
    if (end == std::string_view::npos) return;
    if (!line_.empty() && !is_of_a_backtrace(line_)) lines_.push_back(line_);
    if (lines_.size() > remembered_lines) lines_.pop_front();
    line_.clear();
    bytes.remove_prefix(end + 1);
  }
}

void OutputStream::log(std::string_view bytes) {
  while (log_.open() && !bytes.empty()) {
    const ssize_t n = ::write(log_.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return log_.close();  // a full disk must not end the training
    bytes.remove_prefix(n);
  }
}

void OutputStream::close() {
  if (!open()) return;
  pipe_.close();
  log_.close();
  if (!line_.empty()) remember("\n");
  if (!sink_ || held_.empty()) return;
  if (!prefix_.empty()) held_ += '\n';
  show_lines(held_);
  held_.clear();
}

}  // namespace ivme::launch
