#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ivme::cli {

// One flag of a sub-command: a row of its help and of its parser.
struct Flag {
  const char* group;     // heading in the help; rows of a group stand together
  const char* name;      // without dashes, with '_'; accepted with '-' too
  char letter;           // its short form, 0: none
  const char* value;     // what its value is called; null: a switch; behind '=': a switch that may have one
  const char* text;      // one sentence
  const char* fallback;  // default; null: off
  const char* variable;  // environment variable that the ranks get it in; null: none
};

struct Help {
  const char* usage;
  const char* what;
  const char* example;
};

// The arguments of a sub-command, parsed up to the first word that is neither a flag nor a flag's value.
// Throws launch::UsageError for an unknown flag, naming the nearest, and for a flag without its value.
class Arguments {
 public:
  Arguments(const char* command, const std::vector<Flag>& flags, int argc, char** argv);

  bool wants_help() const { return help_; }
  bool has(const std::string& name) const { return given_.contains(name); }
  std::optional<std::string> text(const std::string& name) const;
  std::optional<int64_t> number(const std::string& name) const;  // throws launch::UsageError if it is none
  const std::vector<std::string>& rest() const { return rest_; }

 private:
  std::string command_;
  std::map<std::string, std::string> given_;
  std::vector<std::string> rest_;
  bool help_ = false;
};

void print_help(const Help& help, const std::vector<Flag>& flags);

}  // namespace ivme::cli
