#pragma once
#include <zlib.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace ivme::test {

// The lines of one kind of tests/data/sharding.jsonl.gz: what Python Accelerate 1.15.0 does.
inline std::vector<nlohmann::json> recorded(const std::string& kind) {
  gzFile file = gzopen(IVME_SOURCE_DIR "/tests/data/sharding.jsonl.gz", "rb");
  if (file == nullptr) throw std::runtime_error("tests/data/sharding.jsonl.gz cannot be opened");
  std::string text;
  std::vector<char> block(1 << 16);
  for (int n; (n = gzread(file, block.data(), block.size())) > 0;) text.append(block.data(), n);
  gzclose(file);
  std::vector<nlohmann::json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    auto object = nlohmann::json::parse(line);
    if (object["kind"] == kind) lines.push_back(std::move(object));
  }
  return lines;
}

}  // namespace ivme::test
