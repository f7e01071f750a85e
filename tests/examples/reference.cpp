#include "examples/reference.h"

#include <map>
#include <sstream>
#include <stdexcept>

#include "support/files.h"

namespace examples::testing {
namespace {

const std::string folder = IVME_SOURCE_DIR "/tests/data/reference/";

// matrix.txt has one run per line: its name, and the arguments of reference.py.
Words arguments_of(const std::string& name) {
  std::istringstream lines(read_text(folder + "matrix.txt"));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string word;
    if (!(words >> word) || word != name) continue;
    Words arguments;
    while (words >> word) arguments.push_back(word);
    return arguments;
  }
  throw std::runtime_error("matrix.txt has no run " + name);
}

}  // namespace

Recording recording(const std::string& name) {
  static const std::map<std::string, std::string> names = {{"--accumulate", "--gradient_accumulation_steps"},
                                                           {"--precision", "--mixed_precision"}};
  Recording result;
  result.example = "fashion_mnist";
  const Words arguments = arguments_of(name);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--world") {
      result.processes = std::stoi(arguments.at(++i));
    } else if (word == "--model" && arguments.at(i + 1) == "lm") {
      result.example = "char_lm";
      ++i;
    } else {
      const auto found = names.find(word);
      result.flags.push_back(found == names.end() ? word : found->second);
    }
  }
  std::istringstream lines(read_text(folder + name + ".jsonl.gz"));
  for (std::string line; std::getline(lines, line);) {
    auto json = nlohmann::json::parse(line);
    const std::string kind = json.value("kind", "micro");
    if (kind == "micro") result.micro.push_back(std::move(json));
    if (kind == "batch") result.batches.push_back(std::move(json));
    if (kind == "eval") result.eval = std::move(json);
  }
  return result;
}

Record read_record(const std::string& path) {
  Record record;
  std::istringstream lines(read_text(path));
  for (std::string line; std::getline(lines, line);) {
    auto json = nlohmann::json::parse(line);
    if (json.at("kind") == "micro")
      record.micro.push_back(std::move(json));
    else if (json.at("kind") == "step")
      record.steps.push_back(std::move(json));
    else if (json.at("kind") == "final")
      record.final = std::move(json);
  }
  return record;
}

}  // namespace examples::testing
