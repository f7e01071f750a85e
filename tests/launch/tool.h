#pragma once
#include <string>
#include <vector>

#include "launch/file_descriptor.h"

namespace ivme::testing {

struct Result {
  int code = -1;  // exit code; -signal if a signal ended the tool
  std::string out, err;
  double seconds = 0;
  long peak_kib = 0;
};

// A running `ivme` with its stdin, stdout and stderr in the test's hand. The destructor kills it.
class Tool {
 public:
  struct Setup {
    std::string input = {};                     // stdin
    bool merged = false;                        // stderr into stdout, as with 2>&1
    std::vector<std::string> environment = {};  // NAME=VALUE, added
    int err = -1;                               // stderr, if not a pipe of the test
  };
  explicit Tool(const std::vector<std::string>& arguments) : Tool(arguments, Setup{}) {}
  Tool(const std::vector<std::string>& arguments, const Setup& setup);
  ~Tool();

  void send(int signal) const;
  void stop_reading() { out_.close(); }
  // Reads on until stdout (or stderr) holds `text`; false after `seconds`.
  bool shows(const std::string& text, double seconds = 10);
  Result wait();  // until it ends; after 30 s it is killed
  const std::string& out() const { return result_.out; }

 private:
  bool read_some(double seconds);

  int pid_ = -1;
  double begin_ = 0;
  launch::FileDescriptor out_, err_;
  Result result_;
};

Result ivme(const std::vector<std::string>& arguments);
Result ivme(const std::vector<std::string>& arguments, const Tool::Setup& setup);

// A word that no other process has: as a variable it marks all that descends from a tool.
std::string unique_word();

// How many processes were started with `word` in their environment, zombies not counted.
int processes_with(const std::string& word);

// The pid of the one of them that the kernel knows by `name`; 0: none.
int process_named(const std::string& name, const std::string& word);

// Waits until none has it; false after `seconds`.
bool all_gone(const std::string& word, double seconds);

std::vector<std::string> lines(const std::string& text);

}  // namespace ivme::testing
