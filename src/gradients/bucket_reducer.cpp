#include "gradients/bucket_reducer.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <limits>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "gradients/shared_memory_hook.h"
#include "ivme/error.h"

namespace ivme {
namespace {

constexpr size_t first_bucket_bytes = 1 << 20;
constexpr size_t broadcast_bytes = 250 << 20;

// Passes gradients on unchanged. All outputs of a forward go through one such node, so that an output the
// loss does not use still sends its (undefined) gradient on, and the reducer hears from every parameter
// behind it.
struct PassThrough : torch::autograd::Node {
  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    return std::move(gradients);
  }
};

void pass_through_one_node(const std::vector<at::Tensor*>& outputs) {
  torch::autograd::variable_list inputs;
  std::vector<at::Tensor*> differentiable;
  for (at::Tensor* output : outputs)
    if (output->requires_grad()) {
      differentiable.push_back(output);
      inputs.push_back(*output);
    }
  if (inputs.empty()) return;
  auto node = c10::make_intrusive<PassThrough>();
  node->set_next_edges(torch::autograd::collect_next_edges(inputs));
  for (at::Tensor* output : differentiable) {
    at::Tensor passed;
    {
      at::NoGradGuard no_grad;
      passed = output->clone();
    }
    torch::autograd::set_history(passed, node);
    *output = passed;
  }
}

bool fits_shared_average(const BucketReducer::Parameter& parameter) {
  auto dtype = parameter.tensor.scalar_type();
  return !parameter.sparse_gradient && (dtype == at::kFloat || dtype == at::kDouble);
}

}  // namespace

class BucketReducer::Reducer : public c10d::Reducer {
 public:
  using c10d::Reducer::Reducer;
  bool unfinished() const { return require_finalize_; }
};

BucketReducer::BucketReducer(std::shared_ptr<Group> group, std::vector<Parameter> parameters,
                             std::vector<at::Tensor> buffers, const DataParallelOptions& options)
    : group_(std::move(group)),
      parameters_(std::move(parameters)),
      buffers_(std::move(buffers)),
      options_(options) {
  std::vector<at::Tensor> tensors;
  std::vector<bool> sparse;
  std::unordered_map<size_t, std::string> names;
  for (const Parameter& parameter : parameters_) {
    names[tensors.size()] = parameter.name;
    tensors.push_back(parameter.tensor);
    sparse.push_back(parameter.sparse_gradient);
  }
  const auto& process_group = group_->process_group();
  group_->run("the comparison of the model's parameters in prepare", [&] {
    try {
      c10d::verify_params_across_processes(process_group, tensors, std::nullopt);
    } catch (const c10::DistError&) {
      throw;
    } catch (const c10::Error& difference) {
      throw Error("prepare was given different models on the ranks: " + difference.msg() +
                  ". Build the same model on every rank.");
    }
  });
  std::vector<at::Tensor> state;
  for (const auto* list : {&tensors, &buffers_})
    for (const at::Tensor& tensor : *list) state.push_back(tensor.detach());
  group_->run("the broadcast of the model in prepare",
              [&] { c10d::broadcast_coalesced(process_group, state, broadcast_bytes, 0); });

  auto bucket_bytes = static_cast<size_t>(options.bucket_cap_mb * 1024 * 1024);
  std::vector<size_t> limits = {static_cast<size_t>(std::numeric_limits<int64_t>::max())};
  if (options.find_unused_parameters) limits = {first_bucket_bytes, bucket_bytes};
  auto [buckets, sizes] = c10d::compute_bucket_assignment_by_size(tensors, limits, sparse);
  std::reverse(buckets.begin(), buckets.end());
  reducer_ = std::make_shared<Reducer>(
      std::move(tensors), std::move(buckets), process_group, std::move(sparse),
      static_cast<int64_t>(bucket_bytes), options.find_unused_parameters, options.gradient_as_bucket_view,
      std::move(names), first_bucket_bytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<int64_t>{});
  if (group_->shared_average() && std::all_of(parameters_.begin(), parameters_.end(), fits_shared_average))
    reducer_->register_comm_hook(shared_memory_hook(group_->shared_average()));
  if (options.find_unused_parameters) {  // the search calls the logger without asking whether there is one
    logger_ = std::make_shared<c10d::Logger>(reducer_);
    reducer_->set_logger(logger_);
  }
}

BucketReducer::~BucketReducer() = default;

void BucketReducer::before_forward(bool synchronise) {
  bool gradients = at::GradMode::is_enabled();
  if (gradients) {
    check_finished();
    group_->run("the agreement on the order of gradients before forward", [&] {
      if (synchronise) reducer_->prepare_for_forward();
      reducer_->rebuild_buckets();
    });
  }
  if (!options_.broadcast_buffers || !buffers_are_stale_ || buffers_.empty()) return;
  at::NoGradGuard no_grad;
  group_->run("the broadcast of buffers before forward",
              [&] { c10d::broadcast_coalesced(group_->process_group(), buffers_, broadcast_bytes, 0); });
}

void BucketReducer::after_forward(bool synchronise, const std::vector<at::Tensor*>& outputs) {
  buffers_are_stale_ = at::GradMode::is_enabled() && synchronise;
  if (options_.find_unused_parameters && at::GradMode::is_enabled()) pass_through_one_node(outputs);
  if (!buffers_are_stale_) return;
  std::vector<at::Tensor> used;
  if (options_.find_unused_parameters)
    for (const at::Tensor* output : outputs) used.push_back(*output);
  reducer_->prepare_for_backward(used);
}

void BucketReducer::check_finished() const {
  if (!reducer_->unfinished()) return;
  std::string unused;
  for (const Parameter& parameter : parameters_)
    if (!parameter.tensor.grad().defined()) unused += (unused.empty() ? "" : ", ") + parameter.name;
  throw Error("Rank " + std::to_string(group_->rank()) + "'s last backward did not reach all parameters (" +
              (unused.empty() ? "which, cannot be told" : "without a gradient: " + unused) +
              "), so no gradients were averaged over the ranks. Use every parameter in every forward, or set "
              "data_parallel.find_unused_parameters. (A weight tied by assignment leaves the old tensor "
              "registered: register the same tensor in both modules.)");
}

}  // namespace ivme
