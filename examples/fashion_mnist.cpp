// Trains an image classifier on Fashion-MNIST, or with `--dataset digits` on 8 x 8 digits, on one process or
// on several:
//
//   ivme launch --cpu --num_processes 2 fashion_mnist --model cnn
//
// fashion_mnist --help lists the flags.
#include <ivme/ivme.h>
#include <torch/torch.h>

#include "support/datasets.h"
#include "support/files.h"
#include "support/training.h"

namespace nn = torch::nn;
namespace F = torch::nn::functional;

// push_back, so that the layers draw their first weights from front to back: C++ leaves open in which order
// the arguments of Sequential's constructor are made.
nn::Sequential make_mlp(int64_t pixels) {
  nn::Sequential net;
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(pixels, 256));
  net->push_back(nn::ReLU());
  net->push_back(nn::Linear(256, 256));
  net->push_back(nn::ReLU());
  net->push_back(nn::Linear(256, 10));
  return net;
}

nn::Sequential make_cnn(int64_t side, bool batch_norm) {
  nn::Sequential net;
  const auto convolve = [&](int64_t in, int64_t out) {
    net->push_back(nn::Conv2d(nn::Conv2dOptions(in, out, 3).padding(1)));
    if (batch_norm) net->push_back(nn::BatchNorm2d(out));
    net->push_back(nn::ReLU());
    net->push_back(nn::MaxPool2d(2));
  };
  convolve(1, 16);
  convolve(16, 32);
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(32 * (side / 4) * (side / 4), 128));
  net->push_back(nn::ReLU());
  if (batch_norm) net->push_back(nn::Dropout(0.1));
  net->push_back(nn::Linear(128, 10));
  return net;
}

template <class Model, class Loader>
examples::Score evaluate(ivme::Accelerator& accelerator, Model& model, const Loader& batches) {
  torch::NoGradGuard no_grad;
  model->eval();
  examples::Score score;
  for (auto& batch : batches) {
    auto output = model(batch.data);
    auto losses =
        F::cross_entropy(output, batch.target, F::CrossEntropyFuncOptions().reduction(torch::kNone));
    // From all processes, without the samples that filled up the last batch.
    auto [hits, all_losses] =
        accelerator.gather_for_metrics(std::pair(output.argmax(-1) == batch.target, losses));
    score.add(hits, all_losses);
  }
  return score;
}

void train(const examples::Flags& flags) {
  ivme::Accelerator accelerator(flags.accelerator);
  ivme::set_seed(flags.seed);

  auto data = examples::load_images(flags.dataset, flags.data);
  const int64_t side = data.train.pixels.size(1);
  auto net = flags.model == "mlp" ? make_mlp(side * side) : make_cnn(side, flags.model == "cnn_bn");
  auto [batches, test_batches] =
      accelerator.prepare(ivme::data_loader(data.train, {.batch_size = flags.batch_size, .shuffle = true}),
                          ivme::data_loader(data.test, {.batch_size = 256}));

  const double lr = flags.scale_lr ? accelerator.scale_learning_rate(flags.lr) : flags.lr;
  auto raw_optimizer = examples::make_optimizer(flags, net->parameters(), lr);
  auto raw_schedule = examples::make_schedule(flags, accelerator, raw_optimizer, batches.size());
  auto [model, optimizer, schedule] = accelerator.prepare(net, raw_optimizer, raw_schedule);

  const int64_t total = examples::batches_to_run(flags, batches.size());
  ivme::Progress progress({.total = total, .label = flags.model, .enabled = accelerator.is_main_process()});
  for (int64_t done = 0; done < total;)
    for (auto& batch : batches) {
      auto accumulating = accelerator.accumulate(model);
      auto loss = F::cross_entropy(model(batch.data), batch.target);
      accelerator.backward(loss);
      if (flags.clip > 0) accelerator.clip_grad_norm_(model, flags.clip);
      optimizer.step();
      schedule.step();
      optimizer.zero_grad();
      progress.advance(1, {{"loss", loss.item<double>()}});
      if (++done == total) break;
    }

  const auto score = evaluate(accelerator, model, test_batches);
  accelerator.print("test accuracy ", score.accuracy(), ", test loss ", score.loss());
  accelerator.log_final({{"accuracy", score.accuracy()}, {"loss", score.loss()}});
  if (!flags.save_parameters.empty() && accelerator.is_main_process())
    examples::write_raw(flags.save_parameters, net->parameters());
}

int main(int argc, char** argv) {
  return examples::run(argc, argv,
                       {.description = "Trains an image classifier.",
                        .models = {"mlp", "cnn", "cnn_bn"},
                        .datasets = {"fashion", "digits"}},
                       train);
}
