#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace examples::testing {

using Words = std::vector<std::string>;

struct Outcome {
  int code;  // exit code; 124 if it was still running after 150 s
  std::string out, err;
};

// A program with one thread, on loopback, without what the caller's environment says to ivme.
Outcome run(const Words& command);
// An example on `processes` processes, through `ivme launch`.
Outcome launch(int processes, const std::string& example, const Words& flags);
// An example by itself.
Outcome alone(const std::string& example, const Words& flags);

// A folder that goes away with the object.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path(const std::string& name = "") const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

void write_file(const std::string& path, const std::string& bytes);

}  // namespace examples::testing
