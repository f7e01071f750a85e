// Trains a small transformer to continue Moby Dick letter by letter, on one process or on several:
//
//   ivme launch --cpu --num_processes 2 char_lm --optimizer adamw --clip 1
//
// char_lm --help lists the flags.
#include <ivme/ivme.h>
#include <torch/torch.h>

#include "support/datasets.h"
#include "support/files.h"
#include "support/training.h"

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using torch::Tensor;

constexpr int64_t width = 64, heads = 4;

// What Python's F.linear is; nn::Linear adds the bias apart when there are 3 dimensions, and rounds otherwise
// in bf16.
Tensor linear(const nn::Linear& layer, const Tensor& x) {
  return torch::linear(x, layer->weight, layer->bias);
}

struct BlockImpl : nn::Module {
  nn::LayerNorm ln1{nullptr}, ln2{nullptr};
  nn::Linear qkv{nullptr}, proj{nullptr}, fc1{nullptr}, fc2{nullptr};

  BlockImpl() {
    ln1 = register_module("ln1", nn::LayerNorm(nn::LayerNormOptions({width})));
    qkv = register_module("qkv", nn::Linear(width, 3 * width));
    proj = register_module("proj", nn::Linear(width, width));
    ln2 = register_module("ln2", nn::LayerNorm(nn::LayerNormOptions({width})));
    fc1 = register_module("fc1", nn::Linear(width, 4 * width));
    fc2 = register_module("fc2", nn::Linear(4 * width, width));
  }

  Tensor forward(Tensor x) {
    const int64_t batch = x.size(0), time = x.size(1);
    auto parts = linear(qkv, ln1(x)).chunk(3, -1);
    for (Tensor& part : parts) part = part.view({batch, time, heads, width / heads}).transpose(1, 2);
    auto attended =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], {}, 0.0, /*is_causal=*/true);
    x = x + linear(proj, attended.transpose(1, 2).reshape({batch, time, width}));
    return x + linear(fc2, torch::gelu(linear(fc1, ln2(x))));
  }
};
TORCH_MODULE(Block);

struct LanguageModelImpl : nn::Module {
  nn::Embedding emb{nullptr};  // its weight turns letters into vectors and, at the end, vectors into letters
  Block b0{nullptr}, b1{nullptr};
  nn::LayerNorm lnf{nullptr};

  explicit LanguageModelImpl(int64_t vocabulary) {
    emb = register_module("emb", nn::Embedding(vocabulary, width));
    nn::init::normal_(emb->weight, 0.0, 0.02);
    b0 = register_module("b0", Block());
    b1 = register_module("b1", Block());
    lnf = register_module("lnf", nn::LayerNorm(nn::LayerNormOptions({width})));
  }

  Tensor forward(const Tensor& letters) { return torch::linear(lnf(b1(b0(emb(letters)))), emb->weight); }
};
TORCH_MODULE(LanguageModel);

// Of each letter, in one row.
Tensor letter_losses(const Tensor& logits, const Tensor& target, F::CrossEntropyFuncOptions options = {}) {
  return F::cross_entropy(logits.reshape({-1, logits.size(-1)}), target.reshape(-1), options);
}

template <class Model, class Loader>
examples::Score evaluate(ivme::Accelerator& accelerator, Model& model, const Loader& batches) {
  torch::NoGradGuard no_grad;
  model->eval();
  examples::Score score;
  for (auto& batch : batches) {
    auto logits = model(batch.data);
    auto losses = letter_losses(logits, batch.target, F::CrossEntropyFuncOptions().reduction(torch::kNone));
    // From all processes, without the samples that filled up the last batch.
    auto [hits, all_losses] = accelerator.gather_for_metrics(
        std::pair(logits.argmax(-1) == batch.target, losses.view(batch.target.sizes()).mean(1)));
    score.add(hits, all_losses);
  }
  return score;
}

void train(const examples::Flags& flags) {
  ivme::Accelerator accelerator(flags.accelerator);
  ivme::set_seed(flags.seed);

  auto text = examples::load_text(flags.data);
  LanguageModel net(text.vocabulary);
  auto [batches, test_batches] =
      accelerator.prepare(ivme::data_loader(text.train, {.batch_size = flags.batch_size, .shuffle = true}),
                          ivme::data_loader(text.test, {.batch_size = 32}));

  const double lr = flags.scale_lr ? accelerator.scale_learning_rate(flags.lr) : flags.lr;
  auto raw_optimizer = examples::make_optimizer(flags, net->parameters(), lr);
  auto raw_schedule = examples::make_schedule(flags, accelerator, raw_optimizer, batches.size());
  auto [model, optimizer, schedule] = accelerator.prepare(net, raw_optimizer, raw_schedule);

  const int64_t total = examples::batches_to_run(flags, batches.size());
  ivme::Progress progress({.total = total, .label = flags.model, .enabled = accelerator.is_main_process()});
  for (int64_t done = 0; done < total;)
    for (auto& batch : batches) {
      auto accumulating = accelerator.accumulate(model);
      auto loss = letter_losses(model(batch.data), batch.target);
      accelerator.backward(loss);
      if (flags.clip > 0) accelerator.clip_grad_norm_(model, flags.clip);
      optimizer.step();
      schedule.step();
      optimizer.zero_grad();
      accelerator.count_tokens(batches.samples() * batch.target.size(1));
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
                       {.description = "Trains a small transformer on the letters of Moby Dick.",
                        .models = {"lm"},
                        .datasets = {"moby"},
                        .sgd_lr = 0.1},
                       train);
}
