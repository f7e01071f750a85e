#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>

#include "launch/usage_error.h"
#include "support/nearest.h"

namespace ivme::cli {
namespace {

std::string with_dashes(std::string name) {
  std::ranges::replace(name, '_', '-');
  return name;
}

// CLI11's spelling: "-n,--num_processes,--num-processes".
std::string spellings(const Flag& flag) {
  std::string all = std::string("--") + flag.name;
  const std::string other = "--" + with_dashes(flag.name);
  if (other != all) all += "," + other;
  return flag.letter ? std::string("-") + flag.letter + "," + all : all;
}

[[noreturn]] void refuse(const std::string& command, const std::string& word,
                         const std::vector<Flag>& flags) {
  std::vector<std::string> names = {"--help"};
  for (const Flag& flag : flags) names.push_back(std::string("--") + flag.name);
  const std::string flag = word.substr(0, word.find('='));
  const auto near = nearest(flag, names);
  throw launch::UsageError("unknown flag '" + flag + "'" + (near ? "; did you mean '" + *near + "'?" : ""),
                           near ? *near + ", or ivme " + command + " --help" : "ivme " + command + " --help");
}

}  // namespace

Arguments::Arguments(const char* command, const std::vector<Flag>& flags, int argc, char** argv)
    : command_(command) {
  CLI::App app;
  app.set_help_flag();
  app.prefix_command();
  app.add_flag("-h,--help", help_);
  std::map<std::string, std::string> values;
  std::map<std::string, CLI::Option*> options;
  for (const Flag& flag : flags) {
    CLI::Option*& option = options[flag.name];
    if (!flag.value)
      option = app.add_flag(spellings(flag));
    else if (flag.value[0] == '=')
      option = app.add_flag(spellings(flag), values[flag.name]);
    else
      option = app.add_option(spellings(flag), values[flag.name])->take_last();
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string what = error.what();
    throw launch::UsageError(what.substr(0, what.find(':')) + " needs a value",
                             std::string("ivme ") + command + " --help");
  } catch (const CLI::ParseError& error) {
    throw launch::UsageError(error.what(), std::string("ivme ") + command + " --help");
  }
  for (const Flag& flag : flags) {
    const CLI::Option* option = options[flag.name];
    if (option->count() > 0 && (flag.value || option->as<bool>())) given_[flag.name] = values[flag.name];
  }
  rest_ = app.remaining();
  if (!rest_.empty() && rest_[0] == "--") {
    rest_.erase(rest_.begin());
  } else if (!rest_.empty() && rest_[0].starts_with("-")) {
    refuse(command, rest_[0], flags);
  }
}

std::optional<std::string> Arguments::text(const std::string& name) const {
  const auto found = given_.find(name);
  return found == given_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<int64_t> Arguments::number(const std::string& name) const {
  const auto word = text(name);
  if (!word) return std::nullopt;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(word->data(), word->data() + word->size(), number);
  if (error != std::errc() || end != word->data() + word->size()) {
    throw launch::UsageError("--" + name + " '" + *word + "' is not a whole number", "--" + name + " 2");
  }
  return number;
}

void print_help(const Help& help, const std::vector<Flag>& flags) {
  std::printf("usage: %s\n\n%s\n", help.usage, help.what);
  std::string group;
  for (const Flag& flag : flags) {
    if (group != flag.group) std::printf("\n%s:\n", flag.group);
    group = flag.group;
    const std::string letter = flag.letter ? std::string("-") + flag.letter + ", " : "    ";
    const std::string name = letter + "--" + flag.name +
                             (!flag.value            ? ""
                              : flag.value[0] == '=' ? "[" + std::string(flag.value) + "]"
                                                     : " " + std::string(flag.value));
    std::printf("  %s\n        %s", name.c_str(), flag.text);
    if (flag.fallback) std::printf(" Default: %s.", flag.fallback);
    if (flag.variable) std::printf(" The program gets: %s.", flag.variable);
    std::printf("\n");
  }
  std::printf("\nFlags may be written with - or _ between words.\n\nExample:\n  %s\n", help.example);
}

}  // namespace ivme::cli
