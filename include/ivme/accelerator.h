#pragma once
#include <c10/core/Device.h>

#include <chrono>
#include <concepts>
#include <sstream>
#include <tuple>

#include "ivme/compiled_step.h"
#include "ivme/data_loader.h"
#include "ivme/error.h"
#include "ivme/precision.h"
#include "ivme/prepared.h"
#include "ivme/process.h"
#include "ivme/tensors.h"

namespace torch::nn {
class Module;
}

namespace ivme {

// How gradients of a model are reduced, as PyTorch's DistributedDataParallel takes it.
struct DataParallelOptions {
  bool broadcast_buffers = true;  // rank 0's buffers before each forward that follows a synchronised one
  bool find_unused_parameters = false;  // needed when a forward does not use every parameter
  // Gradients are views into the all-reduce buckets: less memory and copying.
  bool gradient_as_bucket_view = false;
  double bucket_cap_mb = 25;  // MiB per all-reduce
};

// How loaders are shared out (ivme/data_loader.h).
struct SharingOptions {
  bool split_batches = false;  // batch_size is that of all ranks together
  bool even_batches = true;    // complete the last batches with samples from the epoch's start
  // On xla, one worker: pad a short batch, with a mask (ivme/data_loader.h). Off: complete it as above.
  bool pad_last_batch = true;
  // One order for a seed whatever the number of ranks, drawn from seed + epoch. Off: the order that
  // Accelerate's default sampler draws, which differs between 1 and more ranks.
  bool use_seedable_sampler = true;
  std::optional<uint64_t> data_seed = {};  // instead of the seed that set_seed set
};

// Each unset value comes from the environment (named in brackets), else it is the default given.
struct AcceleratorOptions {
  std::optional<Precision> mixed_precision = {};            // [ACCELERATE_MIXED_PRECISION] no
  std::optional<int64_t> gradient_accumulation_steps = {};  // [ACCELERATE_GRADIENT_ACCUMULATION_STEPS] 1
  // "cpu", "cuda", "xla" or "tpu" [IVME_DEVICE, ACCELERATE_USE_CPU, PJRT_DEVICE]: "cuda" if there is one,
  // else "cpu".
  std::optional<std::string> device = {};
  DataParallelOptions data_parallel = {};
  SharingOptions sharing = {};
  bool step_scheduler_with_optimizer = true;
  // The last micro-batch of a loader always updates, so no gradient crosses an epoch's end.
  bool sync_with_dataloader = true;
  bool device_placement = true;  // prepare and the loader move models and batches to the device
  // Of collectives [IVME_TIMEOUT seconds]: 30 minutes, 10 on GPU.
  std::optional<std::chrono::milliseconds> timeout = {};
  std::optional<std::string> record = {};  // file of the run record, docs/run_record.md [IVME_RECORD] none
  bool record_micro = false;               // also each micro-batch's loss of each rank
  int64_t record_every = 10;               // steps between parameter and update norms
  // On CPUs and GPUs dropout in a prepared model's forward draws what it draws on xla: from the seed, the
  // step, its place in the step, and the row of the global batch, instead of a generator of this process. So
  // one process, several and xla drop alike. The first dimension of what is dropped must be the batch's. Slow
  // on GPUs: masks are made on the CPU.
  bool row_keyed_dropout = false;
  // On xla: one more different program than this is an error, for a loop that must not compile again.
  std::optional<int64_t> max_programs = {};  // [IVME_XLA_MAX_PROGRAMS] any number
};

enum class Reduction { sum, mean, max };

struct BackwardOptions {
  std::optional<at::Tensor> gradient = {};  // of the loss, when that is not a scalar
  bool retain_graph = false;
  bool create_graph = false;
};

namespace detail {
struct AcceleratorState;

std::shared_ptr<ModelRuntime> prepare_module(AcceleratorState&, std::shared_ptr<torch::nn::Module>,
                                             const std::function<void()>& tie);
// `key` tells a raw object prepared before.
PreparedOptimizer prepare_optimizer(AcceleratorState&, const optim::Optimizer&, const void* key);
PreparedSchedule prepare_schedule(AcceleratorState&, const optim::Schedule&, const void* key);
std::shared_ptr<LoaderCore> prepare_loader(AcceleratorState&, const std::shared_ptr<LoaderCore>&);
std::vector<at::Tensor> parameters_of(const ModelRuntime& runtime);
std::vector<at::Tensor> parameters_of(const torch::nn::Module& module);
at::Tensor gather(AcceleratorState&, const at::Tensor&);
at::Tensor gather_for_metrics(AcceleratorState&, const at::Tensor&);
std::vector<std::string> gather_strings(AcceleratorState&, const std::vector<std::string>&, bool for_metrics);
at::Tensor reduce(AcceleratorState&, const at::Tensor&, Reduction);
at::Tensor pad(AcceleratorState&, const at::Tensor&, int64_t dim, double value, bool first);

template <class T>
concept ModuleHolder =
    requires(const T& holder) {
      { holder.ptr() };
    } &&
    std::is_base_of_v<torch::nn::Module,
                      typename std::remove_cvref_t<decltype(std::declval<const T&>().ptr())>::element_type>;
template <class T>
struct IsPrepared : std::false_type {};
template <class I>
struct IsPrepared<PreparedModel<I>> : std::true_type {};
template <class T>
struct IsLoader : std::false_type {};
template <class B>
struct IsLoader<DataLoader<B>> : std::true_type {};
template <class T>
struct SharedModule : std::false_type {};
template <class M>
  requires std::is_base_of_v<torch::nn::Module, M>
struct SharedModule<std::shared_ptr<M>> : std::true_type {};
template <class T>
inline constexpr bool is_torch_optimizer = std::is_base_of_v<torch::optim::Optimizer, T>;
template <class T>
inline constexpr bool is_torch_schedule = std::is_base_of_v<torch::optim::LRScheduler, T>;
template <class>
inline constexpr bool cannot_prepare = false;
template <class>
inline constexpr bool needs_a_shared_module = false;
}  // namespace detail

// Ends accumulation's or no_sync's effect on the models it was opened for. Move-only.
class SyncScope {
 public:
  explicit SyncScope(std::function<void()> leave) : leave_(std::move(leave)) {}
  ~SyncScope() {
    if (leave_) leave_();
  }
  SyncScope(SyncScope&& other) noexcept : leave_(std::exchange(other.leave_, nullptr)) {}
  SyncScope& operator=(SyncScope&&) = delete;

 private:
  std::function<void()> leave_;
};

// Runs one training loop on one process or on several. Create it once at the start, prepare what the loop
// uses, call backward in place of loss.backward(). Every rank must make the same calls in the same order.
//
// Throws Error (or lets c10::Error pass) for what cannot be done: a device that is not there, a rank that has
// ended or does not answer within `timeout` (it is named), tensors whose shapes differ between ranks (all of
// them are listed). After a rank is lost the process group is dead: end the program. Not for use by several
// threads at once.
class Accelerator {
 public:
  explicit Accelerator(const AcceleratorOptions& options = {});
  ~Accelerator();
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  // Takes models (module holders or shared_ptr), optimizers (ivme::optim or torch::optim), loaders and
  // schedules, in any order and number, and returns their prepared counterparts in the same order (a single
  // one not as a tuple). What is prepared already comes back as it is. The raw objects stay usable and share
  // parameters and state; a torch::optim optimizer or scheduler given by reference must outlive the prepared
  // one.
  //
  // A model is moved to the device; on several ranks its parameters and buffers become rank 0's. Weights that
  // are one tensor stay one: tie_weights() of the model is called if there is one, and prepare throws if
  // tying broke.
  template <class... Ts>
  auto prepare(Ts&&... objects) {
    static_assert(sizeof...(Ts) > 0, "prepare at least one object");
    if constexpr (sizeof...(Ts) == 1)
      return (prepare_one(std::forward<Ts>(objects)), ...);
    else
      return std::tuple{prepare_one(std::forward<Ts>(objects))...};  // braces: evaluated from left to right
  }

  // loss / gradient_accumulation_steps, then backward; on a synchronised micro-batch gradients are
  // all-reduced (mean over ranks) while backward still runs.
  void backward(const at::Tensor& loss, const BackwardOptions& options = {});

  // One micro-batch: `auto scope = accelerator.accumulate(model);` at the top of the loop's body. Every K-th
  // call, and the last batch of a loader, synchronises: gradients are reduced, optimizers and schedules step.
  template <class... Ms>
  [[nodiscard]] SyncScope accumulate(const Ms&... models) {
    return enter_accumulate({models.runtime()...});
  }
  // Inside the scope backward only adds to the local gradients.
  template <class M>
  [[nodiscard]] SyncScope no_sync(const M& model) {
    return enter_no_sync({model.runtime()});
  }
  // The present micro-batch ends in an update.
  bool sync_gradients() const;

  // Scales gradients so that their total norm is at most max_norm and returns the norm they had, a 0-d tensor
  // on the device. total = norm of the per-tensor norms, factor = min(1, max_norm / (total + 1e-6)). Without
  // effect on micro-batches that do not synchronise. Takes a prepared or raw model, or its parameters.
  template <class M>
  at::Tensor clip_grad_norm_(const M& model, double max_norm, double norm_type = 2.0) {
    return clip_norm(gradients_owner(model), max_norm, norm_type);
  }
  template <class M>
  void clip_grad_value_(const M& model, double clip_value) {
    clip_value_of(gradients_owner(model), clip_value);
  }

  // Autocast to mixed_precision until the scope ends (a prepared model's forward does so by itself).
  [[nodiscard]] SyncScope autocast();

  // The step, one function with forward, backward and update, for loops on xla that must cost the host
  // nothing: after some calls that recorded the same program, a call only runs it (replay); the step's code
  // is not called then. On other devices each call calls the step. A call is one step: whatever was recorded
  // before it is run first.
  //
  // The step takes tensors, and whatever else visit_tensors knows, as arguments, and returns such values or
  // nothing; tensors come back detached. Calls whose arguments differ in shape or in other values than
  // tensors are told apart, each with a program of its own, and so are micro-batches with and without an
  // update, train() and eval(), and frozen parameters.
  //
  // What its code does on the host does not happen in a replay (printing, counting, pushing into a vector),
  // but for the steps of prepared optimizers of ivme::optim and of schedules. A number that changes from call
  // to call must be a host_scalar; learning rates and what optimizers count are known. What cannot be
  // replayed (a number that changes, a tensor that escapes, a value read in the step, a run record) is said
  // once on standard error, and recording goes on, which is slower and right. Now and then a call is recorded
  // to compare: calls 4, 8, 16, … and every 257th. Throws Error when it is not what has been replayed.
  template <class Step>
  CompiledStep<std::decay_t<Step>> compile(Step&& step, const CompileOptions& options = {},
                                           std::source_location where = std::source_location::current()) {
    return {std::forward<Step>(step), step_replay(options, where)};
  }

  // ---- collectives. Each takes what visit_tensors knows and gives back the same structure with new tensors.
  // Shapes and dtypes are compared first, and every rank throws when they differ. All ranks' tensors
  // concatenated along dimension 0; a 0-d tensor becomes [num_processes].
  template <class T>
  T gather(T value) {
    visit_tensors(value, [this](at::Tensor& tensor) { tensor = detail::gather(*state_, tensor); });
    return value;
  }
  // gather without the samples that even_batches repeated, and without padding: in a batch that has any,
  // tensors with one row per sample of the global batch are cut to the real samples. Call it for every batch,
  // inside the loop.
  template <class T>
  T gather_for_metrics(T value) {
    if constexpr (std::is_same_v<T, std::vector<std::string>>)
      return detail::gather_strings(*state_, value, true);
    else
      visit_tensors(value,
                    [this](at::Tensor& tensor) { tensor = detail::gather_for_metrics(*state_, tensor); });
    return value;
  }
  // All ranks' lists joined in the order of ranks.
  std::vector<std::string> gather_object(const std::vector<std::string>& value) {
    return detail::gather_strings(*state_, value, false);
  }
  template <class T>
  T reduce(T value, Reduction reduction = Reduction::sum) {
    visit_tensors(value, [&](at::Tensor& tensor) { tensor = detail::reduce(*state_, tensor, reduction); });
    return value;
  }
  // Pads dimension `dim` to the largest size among ranks, behind the values or, with `first`, before them.
  template <class T>
  T pad_across_processes(T value, int64_t dim = 0, double pad_value = 0, bool first = false) {
    visit_tensors(value,
                  [&](at::Tensor& tensor) { tensor = detail::pad(*state_, tensor, dim, pad_value, first); });
    return value;
  }
  // On xla: runs what has been recorded, as one program. A prepared loader does so whenever it advances; a
  // loop without one calls this at the end of its body. Elsewhere nothing.
  void end_step();
  // Returns once every rank is here. Throws after the timeout, naming the call and the ranks that are
  // missing.
  void wait_for_everyone(const std::string& what = "wait_for_everyone");

  // ---- facts
  c10::Device device() const;
  DistributedType distributed_type() const;
  int num_processes() const;
  int process_index() const;
  int local_process_index() const;
  bool is_main_process() const { return process_index() == 0; }
  bool is_local_main_process() const { return local_process_index() == 0; }
  bool is_last_process() const { return process_index() == num_processes() - 1; }
  Precision mixed_precision() const;
  int64_t gradient_accumulation_steps() const;
  bool optimizer_step_was_skipped() const;
  // Samples behind one update, over all ranks: global batch of the loader * accumulation. Without a loader:
  // of the one whose loop is running, else of those prepared; throws Error when there is none or when they
  // differ.
  int64_t observed_batch_size() const;
  template <class B>
  int64_t observed_batch_size(const DataLoader<B>& loader) const {
    return loader.global_batch_size() * gradient_accumulation_steps();
  }
  // lr * num_processes: the linear rule. Whether to scale is up to you; nothing scales by itself.
  double scale_learning_rate(double lr) const { return lr * num_processes(); }

  template <class Impl>
  std::shared_ptr<Impl> unwrap_model(const PreparedModel<Impl>& model) const {
    return model.ptr();
  }

  // Writes its arguments and a line end to standard output, on this host's first process only.
  template <class... Ts>
  void print(const Ts&... values) const {
    if (!is_local_main_process()) return;
    std::ostringstream line;
    (line << ... << values);
    write_line(line.str());
  }

  // ---- the run record (docs/run_record.md); nothing happens unless recording is on
  void log_final(const std::vector<std::pair<std::string, double>>& metrics);
  void count_tokens(int64_t n);  // tokens of this rank's present micro-batch

 private:
  std::shared_ptr<detail::StepReplay> step_replay(const CompileOptions& options, std::source_location where);
  SyncScope enter_accumulate(std::vector<std::shared_ptr<detail::ModelRuntime>> models);
  SyncScope enter_no_sync(const std::vector<std::shared_ptr<detail::ModelRuntime>>& models);
  at::Tensor clip_norm(const std::vector<at::Tensor>& parameters, double max_norm, double norm_type);
  void clip_value_of(const std::vector<at::Tensor>& parameters, double clip_value);
  static void write_line(const std::string& line);

  template <class M>
  static std::vector<at::Tensor> gradients_owner(const M& model) {
    if constexpr (std::is_convertible_v<const M&, std::vector<at::Tensor>>)
      return model;
    else if constexpr (detail::IsPrepared<M>::value)
      return detail::parameters_of(*model.runtime());
    else
      return model->parameters();
  }

  template <class Impl>
  PreparedModel<Impl> prepare_model(std::shared_ptr<Impl> module) {
    std::function<void()> tie;
    if constexpr (requires { module->tie_weights(); }) tie = [module] { module->tie_weights(); };
    return {module, detail::prepare_module(*state_, module, std::move(tie))};
  }

  template <class T>
  auto prepare_one(T&& object) {
    using Type = std::remove_cvref_t<T>;
    if constexpr (detail::IsPrepared<Type>::value || std::is_same_v<Type, PreparedOptimizer> ||
                  std::is_same_v<Type, PreparedSchedule>)
      return object;
    else if constexpr (std::is_base_of_v<optim::Optimizer, Type>)
      return detail::prepare_optimizer(*state_, object, object.impl().get());
    else if constexpr (detail::is_torch_optimizer<Type>)
      return detail::prepare_optimizer(*state_, optim::wrap(object), std::addressof(object));
    else if constexpr (std::is_same_v<Type, optim::Schedule>)
      return detail::prepare_schedule(*state_, object, object.impl().get());
    else if constexpr (detail::is_torch_schedule<Type>)
      return detail::prepare_schedule(*state_, optim::wrap(object), std::addressof(object));
    else if constexpr (std::is_convertible_v<Type, std::shared_ptr<torch::optim::Optimizer>>)
      return detail::prepare_optimizer(*state_, optim::wrap(std::shared_ptr<torch::optim::Optimizer>(object)),
                                       object.get());
    else if constexpr (detail::IsLoader<Type>::value)
      return Type(detail::prepare_loader(*state_, object.core()), object.fetch());
    else if constexpr (detail::SharedModule<Type>::value)
      return prepare_model(object);
    else if constexpr (detail::ModuleHolder<Type>)
      return prepare_model(object.ptr());
    else if constexpr (std::is_base_of_v<torch::nn::Module, Type>)
      static_assert(
          detail::needs_a_shared_module<Type>,
          "prepare a model through std::make_shared or a TORCH_MODULE holder: the accelerator keeps it");
    else
      static_assert(
          detail::cannot_prepare<Type>,
          "prepare takes models, ivme::optim or torch::optim optimizers, schedules and ivme::data_loader");
  }

  std::shared_ptr<detail::AcceleratorState> state_;
};

}  // namespace ivme
