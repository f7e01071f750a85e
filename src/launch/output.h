#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launch/file_descriptor.h"

namespace ivme::launch {

// Seconds on steady_clock.
double steady_seconds();

// Where lines go to: stdout or stderr of the launcher. Buffers a little, so that a slow reader holds up the
// ranks but not the launcher.
class Sink {
 public:
  explicit Sink(int fd) : fd_(fd) {}

  int fd() const { return fd_; }
  bool waiting() const { return written_ < pending_.size(); }
  bool full() const { return pending_.size() - written_ >= 256 * 1024; }
  bool broken() const { return broken_; }  // its reader has gone; what is put in is dropped
  bool in_mid_line() const { return last_ != '\n' && last_ != '\r'; }
  void put(std::string_view text);
  void write_some();  // when poll says that fd() takes some
  void drop() { pending_.clear(), written_ = 0; }

 private:
  int fd_;
  std::string pending_;
  size_t written_ = 0;  // of pending_
  char last_ = '\n';
  bool broken_ = false;
};

// The two sinks; one and the same if stdout and stderr are the same file, so that their order holds.
struct Sinks {
  std::shared_ptr<Sink> out, err;
};
Sinks standard_sinks();

// One of a rank's two output streams, from the pipe to sink, log file and memory.
class OutputStream {
 public:
  static constexpr size_t remembered_lines = 10;

  // `sink` null: not shown. `prefix` empty: bytes pass unchanged, whole lines at a time; a progress bar (a
  // carriage return) at once, any other unfinished line after 0.1 s of silence. With a prefix only whole
  // lines pass, each behind it.
  OutputStream(FileDescriptor pipe, std::shared_ptr<Sink> sink, std::string prefix, FileDescriptor log);

  int fd() const { return pipe_.get(); }
  bool open() const { return pipe_.open(); }
  bool readable() const { return open() && !(sink_ && sink_->full()); }
  // Seconds on steady_clock when an unfinished line is to be shown; infinity: there is none.
  double unfinished_until() const;
  void read_some();  // when poll says that there is something
  void show_unfinished();
  void close();  // at the end of the pipe
  const std::deque<std::string>& last_lines() const { return lines_; }

 private:
  void show(std::string_view bytes);
  void show_lines(std::string_view lines);
  void remember(std::string_view bytes);
  void log(std::string_view bytes);

  FileDescriptor pipe_;
  std::shared_ptr<Sink> sink_;
  std::string prefix_;
  FileDescriptor log_;
  std::string held_;  // shown later: a line that is not whole yet
  double last_read_ = 0;
  std::string line_;  // remembered later, cut to what a report can use
  std::deque<std::string> lines_;
};

}  // namespace ivme::launch
