// The training step that xla_bench.py times on XLA, and nothing else; xla_train_jax.py says the same in jax.
//   xla_train MODEL traced|replayed STEPS FOLDER     MODEL: mlp or transformer
//   xla_train MODEL write 0 FOLDER                   writes its initial parameters and its batches for jax
// Prints one line of JSON: the first losses, when the first step was done (seconds since 1970), and the
// milliseconds of steps.
#include <ivme/ivme.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using torch::Tensor;
using Path = std::filesystem::path;

constexpr int64_t num_batches = 8, width = 128, heads = 4, sequence = 64, vocabulary = 1000;
constexpr int checked = 10, warm_up = 40;  // steps; a compiled step is recorded at least 32 times first

// --- models ------------------------------------------------------------------------------------------------

nn::Sequential make_mlp() {
  nn::Sequential net;
  net->push_back(nn::Linear(784, 256));
  net->push_back(nn::ReLU());
  net->push_back(nn::Linear(256, 256));
  net->push_back(nn::ReLU());
  net->push_back(nn::Linear(256, 10));
  return net;
}

struct BlockImpl : nn::Module {
  nn::LayerNorm ln1 = register_module("ln1", nn::LayerNorm(nn::LayerNormOptions({width})));
  nn::Linear qkv = register_module("qkv", nn::Linear(width, 3 * width));
  nn::Linear proj = register_module("proj", nn::Linear(width, width));
  nn::LayerNorm ln2 = register_module("ln2", nn::LayerNorm(nn::LayerNormOptions({width})));
  nn::Linear fc1 = register_module("fc1", nn::Linear(width, 4 * width));
  nn::Linear fc2 = register_module("fc2", nn::Linear(4 * width, width));

  Tensor forward(Tensor x) {
    const int64_t b = x.size(0), t = x.size(1);
    auto parts = qkv(ln1(x)).chunk(3, -1);
    for (Tensor& part : parts) part = part.view({b, t, heads, width / heads}).transpose(1, 2);
    auto y = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
    x = x + proj(y.transpose(1, 2).reshape({b, t, width}));
    return x + fc2(torch::gelu(fc1(ln2(x))));
  }
};
TORCH_MODULE(Block);

struct TransformerImpl : nn::Module {
  nn::Embedding tokens = register_module("tokens", nn::Embedding(vocabulary, width));
  Tensor positions = register_parameter("positions", torch::randn({sequence, width}) * 0.02);
  Block b0 = register_module("b0", Block());
  Block b1 = register_module("b1", Block());
  nn::LayerNorm ln = register_module("ln", nn::LayerNorm(nn::LayerNormOptions({width})));
  nn::Linear head = register_module("head", nn::Linear(width, vocabulary));
  TransformerImpl() { nn::init::normal_(tokens->weight, 0.0, 0.02); }

  Tensor forward(const Tensor& x) { return head(ln(b1(b0(tokens(x) + positions)))); }
};
TORCH_MODULE(Transformer);

// --- data --------------------------------------------------------------------------------------------------

struct Batches {  // dimension 0: the batch
  Tensor data, target;
};

Batches make_batches(const std::string& name) {
  if (name == "mlp")
    return {torch::randn({num_batches, 64, 784}), torch::randint(10, {num_batches, 64}, torch::kInt64)};
  auto text = torch::randint(vocabulary, {num_batches, 16, sequence + 1}, torch::kInt64);
  return {text.narrow(2, 0, sequence).contiguous(), text.narrow(2, 1, sequence).contiguous()};
}

void write(const Path& path, const std::vector<Tensor>& tensors) {
  std::ofstream file(path, std::ios::binary);
  for (const Tensor& tensor : tensors)
    file.write(static_cast<const char*>(tensor.const_data_ptr()),
               static_cast<std::streamsize>(tensor.nbytes()));
  if (!file.flush()) throw ivme::Error(path.string() + " cannot be written.");
}

// --- clocks ------------------------------------------------------------------------------------------------

double milliseconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

// CPU time of the threads that record and dispatch: the program's own and autograd's. The others are XLA's.
double host_milliseconds() {
  double sum = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name, nanoseconds;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (task.path().filename() != std::to_string(getpid()) && !name.starts_with("pt_autograd")) continue;
    std::ifstream(task.path() / "schedstat") >> nanoseconds;
    sum += 1e-6 * std::stod(nanoseconds);
  }
  return sum;
}

struct Times {
  double wall = milliseconds(CLOCK_MONOTONIC), cpu = milliseconds(CLOCK_PROCESS_CPUTIME_ID),
         host = host_milliseconds();
};

void print(const char* name, const Times& from, const Times& to, double steps) {
  std::printf("\"%s\": {\"wall\": %.4f, \"cpu\": %.4f, \"host\": %.4f}, ", name,
              (to.wall - from.wall) / steps, (to.cpu - from.cpu) / steps, (to.host - from.host) / steps);
}

// --- the loop ----------------------------------------------------------------------------------------------

using Step = std::function<Tensor(const Tensor&, const Tensor&)>;

void measure(ivme::Accelerator& accelerator, const Step& step, const Batches& batches, int64_t steps) {
  Tensor loss;
  int64_t done = 0;
  auto run = [&] {
    const int64_t batch = done++ % num_batches;
    loss = step(batches.data[batch].to(accelerator.device()), batches.target[batch].to(accelerator.device()));
  };
  std::vector<double> losses;
  Times first, second, third;
  double first_step = 0;
  while (done < (steps > 0 ? checked : 1)) {
    run();
    losses.push_back(loss.item<double>());
    if (done == 1) second = Times(), first_step = 1e-3 * milliseconds(CLOCK_REALTIME);
    if (done == 2) third = Times();
  }
  while (steps > 0 && done < checked + warm_up) run();
  loss.item<double>();
  const Times steady;
  for (int64_t i = 0; i < steps; ++i) run();
  loss.item<double>();
  const Times end;

  std::printf("{\"losses\": [");
  for (size_t i = 0; i < losses.size(); ++i) std::printf("%s%.9g", i > 0 ? ", " : "", losses[i]);
  std::printf("], ");
  print("first", first, second, 1);
  if (steps > 0) print("second", second, third, 1);
  if (steps > 0) print("steady", steady, end, static_cast<double>(steps));
  std::printf("\"first_step\": %.6f, \"compiles\": %ld}\n", first_step,
              static_cast<long>(ivme::xla::metrics().compiles));
}

template <class Model>
void train(const Model& net, const ivme::optim::Optimizer& chosen, const std::string& mode, int64_t steps,
           const Batches& batches) {
  ivme::Accelerator accelerator({.device = "xla"});
  auto model = accelerator.prepare(net);
  auto optimizer = accelerator.prepare(chosen);
  auto step_function = [&](const Tensor& data, const Tensor& target) {
    auto output = model(data);
    auto loss = F::cross_entropy(output.reshape({-1, output.size(-1)}), target.reshape(-1));
    accelerator.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    return loss;
  };
  Step step = [&](const Tensor& data, const Tensor& target) {
    auto loss = step_function(data, target);
    accelerator.end_step();
    return loss;
  };
  if (mode != "traced" && mode != "replayed")
    throw ivme::Error("The mode was to be '" + mode + "', but there are traced, replayed and write.");
  if (mode == "replayed") step = accelerator.compile(step_function);
  measure(accelerator, step, batches, steps);
}

template <class Model>
void run(const Model& net, const ivme::optim::Optimizer& optimizer, char** arguments) {
  const std::string name = arguments[1], mode = arguments[2];
  const Path folder = arguments[4];
  const Batches batches = make_batches(name);
  if (mode == "write") {
    write(folder / (name + ".parameters"), net->parameters());
    write(folder / (name + ".batches"), {batches.data, batches.target});
  } else {
    train(net, optimizer, mode, std::stoll(arguments[3]), batches);
  }
}

int main(int, char** arguments) {
  ivme::set_seed(42);
  if (arguments[1] == std::string("mlp")) {
    auto net = make_mlp();
    run(net, ivme::optim::SGD(net->parameters(), {.lr = 0.05, .momentum = 0.9}), arguments);
  } else {
    Transformer net;
    run(net, ivme::optim::AdamW(net->parameters(), {.lr = 1e-3, .weight_decay = 0.01}), arguments);
  }
}
