// The loop that bench.py times, and nothing else: train.py says the same in Python, line for line.
//   bench_train MODEL BATCH_SIZE STEPS DATA_FOLDER     MODEL: mlp, cnn or lm
// Every process prints one line of JSON: when its first step was done (seconds since 1970), CPU and wall
// milliseconds per step without the first 10, and its peak memory in bytes.
#include <ivme/ivme.h>
#include <sys/resource.h>
#include <time.h>
#include <torch/torch.h>

#include <cstdio>

#include "support/datasets.h"

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using torch::Tensor;

double seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

nn::Sequential make_mlp() {
  nn::Sequential net;
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(784, 256));
  net->push_back(nn::ReLU());
  net->push_back(nn::Linear(256, 256));
  net->push_back(nn::ReLU());
  net->push_back(nn::Linear(256, 10));
  return net;
}

nn::Sequential make_cnn() {
  nn::Sequential net;
  net->push_back(nn::Conv2d(nn::Conv2dOptions(1, 16, 3).padding(1)));
  net->push_back(nn::ReLU());
  net->push_back(nn::MaxPool2d(2));
  net->push_back(nn::Conv2d(nn::Conv2dOptions(16, 32, 3).padding(1)));
  net->push_back(nn::ReLU());
  net->push_back(nn::MaxPool2d(2));
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(1568, 128));
  net->push_back(nn::ReLU());
  net->push_back(nn::Linear(128, 10));
  return net;
}

struct BlockImpl : nn::Module {
  nn::LayerNorm ln1 = register_module("ln1", nn::LayerNorm(nn::LayerNormOptions({64})));
  nn::Linear qkv = register_module("qkv", nn::Linear(64, 192));
  nn::Linear proj = register_module("proj", nn::Linear(64, 64));
  nn::LayerNorm ln2 = register_module("ln2", nn::LayerNorm(nn::LayerNormOptions({64})));
  nn::Linear fc1 = register_module("fc1", nn::Linear(64, 256));
  nn::Linear fc2 = register_module("fc2", nn::Linear(256, 64));

  static Tensor linear(const nn::Linear& layer, const Tensor& x) {
    return torch::linear(x, layer->weight, layer->bias);
  }
  Tensor forward(Tensor x) {
    const int64_t b = x.size(0), t = x.size(1);
    auto parts = linear(qkv, ln1(x)).chunk(3, -1);
    for (Tensor& part : parts) part = part.view({b, t, 4, 16}).transpose(1, 2);
    auto y = at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
    x = x + linear(proj, y.transpose(1, 2).reshape({b, t, 64}));
    return x + linear(fc2, torch::gelu(linear(fc1, ln2(x))));
  }
};
TORCH_MODULE(Block);

struct LanguageModelImpl : nn::Module {
  nn::Embedding emb;
  Block b0, b1;
  nn::LayerNorm lnf;
  explicit LanguageModelImpl(int64_t vocabulary) : emb(vocabulary, 64), lnf(nn::LayerNormOptions({64})) {
    register_module("emb", emb);
    register_module("b0", b0);
    register_module("b1", b1);
    register_module("lnf", lnf);
    nn::init::normal_(emb->weight, 0.0, 0.02);
  }
  Tensor forward(const Tensor& x) { return torch::linear(lnf(b1(b0(emb(x)))), emb->weight); }
};
TORCH_MODULE(LanguageModel);

template <class Net, class Dataset>
void train(Net net, Dataset dataset, int64_t batch_size, int64_t steps) {
  ivme::Accelerator accelerator;
  auto [model, optimizer, batches] =
      accelerator.prepare(net, ivme::optim::SGD(net->parameters(), {.lr = 0.05, .momentum = 0.9}),
                          ivme::data_loader(dataset, {.batch_size = batch_size, .shuffle = true}));
  constexpr int64_t warm_up = 10;
  double first_step = 0, cpu = 0, wall = 0, loss_sum = 0;
  for (int64_t done = 0; done < steps;)
    for (auto& batch : batches) {
      auto accumulating = accelerator.accumulate(model);
      auto output = model(batch.data);
      auto loss = F::cross_entropy(output.reshape({-1, output.size(-1)}), batch.target.reshape(-1));
      accelerator.backward(loss);
      optimizer.step();
      optimizer.zero_grad();
      loss_sum += loss.template item<double>();
      if (++done == 1) first_step = seconds(CLOCK_REALTIME);
      if (done == warm_up) cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), wall = seconds(CLOCK_MONOTONIC);
      if (done == steps) break;
    }
  const double per_step = 1e3 / static_cast<double>(steps - warm_up);
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  std::printf("{\"first_step\": %.6f, \"cpu\": %.6f, \"wall\": %.6f, \"memory\": %ld, \"loss\": %.6f}\n",
              first_step, (seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu) * per_step,
              (seconds(CLOCK_MONOTONIC) - wall) * per_step, used.ru_maxrss * 1024,
              loss_sum / static_cast<double>(steps));
}

int main(int, char** argv) {
  const std::string name = argv[1], folder = argv[4];
  const int64_t batch_size = std::stoll(argv[2]), steps = std::stoll(argv[3]);
  ivme::set_seed(42);
  if (name == "lm") {
    auto text = examples::load_text(folder);
    train(LanguageModel(text.vocabulary), text.train, batch_size, steps);
  } else {
    train(name == "mlp" ? make_mlp() : make_cnn(), examples::load_images("fashion", folder).train, batch_size,
          steps);
  }
}
