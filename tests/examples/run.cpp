#include "examples/run.h"

#include <stdlib.h>
#include <sys/wait.h>

#include <fstream>
#include <stdexcept>

#include "support/files.h"

namespace examples::testing {
namespace {

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

Folder::Folder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "ivme-examples-XXXXXX").string();
  if (!::mkdtemp(pattern.data())) throw std::runtime_error("no temporary folder");
  path_ = pattern;
}

Folder::~Folder() { std::filesystem::remove_all(path_); }

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

Outcome run(const Words& command) {
  const Folder folder;
  std::string line =
      "env -u IVME_RECORD -u IVME_PROBE -u IVME_MAX_STEPS -u ACCELERATE_MIXED_PRECISION "
      "-u ACCELERATE_GRADIENT_ACCUMULATION_STEPS OMP_NUM_THREADS=1 timeout -k 5 150";
  for (const std::string& word : command) line.append(" ").append(quoted(word));
  line += " <" + quoted("/dev/null") + " >" + quoted(folder.path("out")) + " 2>" + quoted(folder.path("err"));
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_text(folder.path("out")),
          read_text(folder.path("err"))};
}

Outcome alone(const std::string& example, const Words& flags) {
  Words command = {EXAMPLES_FOLDER "/" + example};
  command.insert(command.end(), flags.begin(), flags.end());
  return run(command);
}

Outcome launch(int processes, const std::string& example, const Words& flags) {
  Words command = {IVME_TOOL,
                   "launch",
                   "--cpu",
                   "--num_processes",
                   std::to_string(processes),
                   EXAMPLES_FOLDER "/" + example};
  command.insert(command.end(), flags.begin(), flags.end());
  return run(command);
}

}  // namespace examples::testing
