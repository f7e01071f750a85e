#include "process/collectives.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "ivme/error.h"

namespace ivme {
namespace {

// What each rank tells the others before a collective: fixed in size, so that it always fits.
constexpr int64_t max_dims = 12;
constexpr int64_t header_size = 3 + max_dims;  // operation, dtype, number of dimensions, sizes

constexpr const char* operations[] = {"gather", "reduce", "pad_across_processes", "gather_object",
                                      "broadcast"};

int64_t code_of(const std::string& what) {
  return std::find(std::begin(operations), std::end(operations), what) - std::begin(operations);
}

std::string shape(const std::vector<int64_t>& sizes) {
  std::string text = "[";
  for (size_t i = 0; i < sizes.size(); ++i) text += (i ? ", " : "") + std::to_string(sizes[i]);
  return text + "]";
}

// Row r: the header of rank r.
at::Tensor headers_of_all(Group& group, const std::string& what, const at::Tensor& tensor) {
  if (tensor.dim() > max_dims)
    throw Error(what + " was asked for a tensor of " + std::to_string(tensor.dim()) +
                " dimensions. At most " + std::to_string(max_dims) + " are supported: flatten it first.");
  at::Tensor mine = at::full({header_size}, 0, at::kLong);
  int64_t* header = mine.mutable_data_ptr<int64_t>();
  header[0] = code_of(what);
  header[1] = static_cast<int64_t>(tensor.scalar_type());
  header[2] = tensor.dim();
  std::copy(tensor.sizes().begin(), tensor.sizes().end(), header + 3);
  at::Tensor all = at::empty({group.size() * header_size}, at::kLong);
  group.run(what, [&] { group.process_group()->all_gather_single(all, mine)->wait(); });
  return all.view({group.size(), header_size});
}

std::vector<int64_t> sizes_in(const int64_t* header) { return {header + 3, header + 3 + header[2]}; }

std::string describe_ranks(const at::Tensor& all, bool with_operation) {
  std::string text;
  for (int64_t r = 0; r < all.size(0); ++r) {
    const int64_t* header = all.const_data_ptr<int64_t>() + r * header_size;
    text += (r ? ", Process " : "Process ") + std::to_string(r) + ": " +
            (with_operation ? operations[header[0]] : "") + (with_operation ? " of " : "") +
            shape(sizes_in(header)) + " " + c10::toString(static_cast<c10::ScalarType>(header[1]));
  }
  return text;
}

void require_equal(Group& group, const std::string& what, const at::Tensor& tensor, bool sizes_too) {
  at::Tensor all = headers_of_all(group, what, tensor);
  const int64_t* first = all.const_data_ptr<int64_t>();
  bool same_call = true, same_tensor = true;
  for (int64_t r = 1; r < all.size(0); ++r) {
    const int64_t* other = first + r * header_size;
    same_call = same_call && other[0] == first[0];
    same_tensor = same_tensor && other[1] == first[1] && other[2] == first[2] &&
                  (!sizes_too || std::equal(other + 3, other + header_size, first + 3));
  }
  if (!same_call)
    throw Error("The ranks are in different calls: " + describe_ranks(all, true) +
                ". Every rank must make the same calls in the same order.");
  if (!same_tensor)
    throw Error(what + " needs tensors of one shape and dtype on all ranks, but they differ: " +
                describe_ranks(all, false) +
                ". Make them equal first, for example with pad_across_processes.");
}

at::Tensor gather_rows(Group& group, const std::string& what, const at::Tensor& tensor) {
  at::Tensor mine = tensor.detach().contiguous();
  if (mine.dim() == 0) mine = mine.reshape({1});
  std::vector<int64_t> sizes = mine.sizes().vec();
  sizes[0] *= group.size();
  at::Tensor all = at::empty(sizes, mine.options());
  if (all.numel() > 0) group.run(what, [&] { group.process_group()->all_gather_single(all, mine)->wait(); });
  return all;
}

}  // namespace

std::vector<std::vector<int64_t>> sizes_of_all(Group& group, const std::string& what,
                                               const at::Tensor& tensor) {
  at::Tensor all = headers_of_all(group, what, tensor);
  std::vector<std::vector<int64_t>> sizes;
  for (int64_t r = 0; r < all.size(0); ++r) {
    const int64_t* header = all.const_data_ptr<int64_t>() + r * header_size;
    if (header[0] != all.const_data_ptr<int64_t>()[0] || header[2] != all.const_data_ptr<int64_t>()[2])
      throw Error(what + " needs the same number of dimensions on all ranks: " + describe_ranks(all, true) +
                  ". Reshape the tensors first.");
    sizes.push_back(sizes_in(header));
  }
  return sizes;
}

at::Tensor gather(Group& group, const at::Tensor& tensor) {
  require_equal(group, "gather", tensor, true);
  return gather_rows(group, "gather", tensor);
}

at::Tensor reduce(Group& group, const at::Tensor& tensor, Reduction reduction) {
  require_equal(group, "reduce", tensor, true);
  std::vector<at::Tensor> result = {tensor.detach().clone(at::MemoryFormat::Contiguous)};
  c10d::AllreduceOptions options;
  options.reduceOp = reduction == Reduction::max ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
  if (tensor.numel() > 0)
    group.run("reduce", [&] { group.process_group()->allreduce(result, options)->wait(); });
  return reduction == Reduction::mean ? result[0].div(group.size()) : result[0];
}

at::Tensor pad(Group& group, const at::Tensor& tensor, int64_t dim, double value, bool first) {
  if (dim < 0) dim += tensor.dim();
  auto sizes = sizes_of_all(group, "pad_across_processes", tensor);
  if (dim < 0 || dim >= tensor.dim()) return tensor;
  int64_t longest = 0;
  for (const auto& of_rank : sizes) longest = std::max(longest, of_rank[dim]);
  int64_t missing = longest - tensor.size(dim);
  if (missing == 0) return tensor;
  std::vector<int64_t> shape_of_padding = tensor.sizes().vec();
  shape_of_padding[dim] = missing;
  at::Tensor padding = at::full(shape_of_padding, value, tensor.options());
  return first ? at::cat({padding, tensor}, dim) : at::cat({tensor, padding}, dim);
}

std::vector<std::string> gather(Group& group, const std::vector<std::string>& strings) {
  // One byte string per rank: for each of its strings the length in 8 bytes, then the bytes.
  std::string packed;
  for (const std::string& one : strings) {
    uint64_t length = one.size();
    packed.append(reinterpret_cast<const char*>(&length), sizeof length).append(one);
  }
  at::Tensor mine = at::empty({static_cast<int64_t>(packed.size())}, at::kByte);
  std::copy(packed.begin(), packed.end(), mine.mutable_data_ptr<uint8_t>());
  auto sizes = sizes_of_all(group, "gather_object", mine);
  int64_t longest = 0;
  for (const auto& of_rank : sizes) longest = std::max(longest, of_rank[0]);
  at::Tensor padded = at::full({longest}, 0, at::kByte);
  padded.narrow(0, 0, mine.size(0)).copy_(mine);
  at::Tensor all = gather_rows(group, "gather_object", padded);
  std::vector<std::string> joined;
  for (int r = 0; r < group.size(); ++r) {
    const char* at = reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>()) + r * longest;
    const char* end = at + sizes[r][0];
    while (at < end) {
      uint64_t length = 0;
      std::copy(at, at + sizeof length, reinterpret_cast<char*>(&length));
      at += sizeof length;
      joined.emplace_back(at, at + length);
      at += length;
    }
  }
  return joined;
}

void broadcast(Group& group, at::Tensor& tensor) {
  require_equal(group, "broadcast", tensor, true);
  std::vector<at::Tensor> tensors = {tensor};
  group.run("broadcast", [&] { group.process_group()->broadcast(tensors)->wait(); });
}

}  // namespace ivme
