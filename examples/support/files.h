#pragma once
#include <ATen/core/TensorBody.h>

#include <string>
#include <vector>

// Data files, gzipped or not. All of these throw ivme::Error when a file is missing, cut short or not what it
// should be; the message names the file.
namespace examples {

// The folder of a package's data files: `given` if it is not empty, else the first of the places that exists:
// /usr/share/datasets/NAME, .deps/usr/share/datasets/NAME in the source tree.
std::string package_folder(const std::string& given, const std::string& name);
// `given` if it is not empty, else the folder data/ of the source tree.
std::string repository_folder(const std::string& given);

std::string read_text(const std::string& path);
// An idx file (the format of MNIST) of unsigned bytes with this many dimensions: uint8.
at::Tensor read_idx(const std::string& path, int64_t dimensions);
// Lines of `columns` numbers from 0 to 255, separated by commas: uint8 [lines, columns].
at::Tensor read_csv(const std::string& path, int64_t columns);

// The raw values one tensor after the other, as they lie in memory on a CPU.
void write_raw(const std::string& path, const std::vector<at::Tensor>& tensors);

}  // namespace examples
