#include <cstdio>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "ivme/version.h"
#include "launch/usage_error.h"
#include "support/nearest.h"

namespace {

struct Command {
  const char* name;
  int (*run)(int argc, char** argv);
  const char* text;
};

constexpr Command commands[] = {
    {"launch", ivme::cli::launch, "run a program on several processes of this machine"},
    {"shards", ivme::cli::shards, "show which process sees which sample"},
};

void print_overview() {
  std::printf("usage: ivme COMMAND [options]\n\n");
  for (const Command& command : commands) std::printf("  %-8s  %s\n", command.name, command.text);
  std::printf(
      "\nExample:\n  ivme launch -n 2 ./build/examples/fashion_mnist --epochs 1\n"
      "\nivme COMMAND --help tells more; the pages are in docs/, beginning with docs/launch.md.\n");
}

int dispatch(int argc, char** argv) {
  const std::string word = argc > 1 ? argv[1] : "--help";
  if (word == "--help" || word == "-h" || word == "help") {
    print_overview();
    return 0;
  }
  if (word == "--version" || word == "-V") {
    std::printf("ivme %s\n", ivme::version());
    return 0;
  }
  std::vector<std::string> names;
  for (const Command& command : commands) {
    if (word == command.name) return command.run(argc - 1, argv + 1);
    names.push_back(command.name);
  }
  names.insert(names.end(), {"--help", "--version"});
  throw ivme::launch::UsageError(ivme::unknown_word("command", word, names), "ivme --help");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return dispatch(argc, argv);
  } catch (const ivme::launch::UsageError& error) {
    std::fprintf(stderr, "error: %s\n  try: %s\n", error.fact().c_str(), error.remedy().c_str());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
