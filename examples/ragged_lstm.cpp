// Trains an LSTM to continue sentences of Moby Dick, which are 5 to 64 letters long. On xla
//
//   ivme launch --xla ragged_lstm             compiles a program for each length that a batch may have
//   ivme launch --xla ragged_lstm --buckets   compiles three
#include <ivme/ivme.h>
#include <torch/torch.h>

#include <iostream>
#include <numeric>

#include "support/files.h"

namespace nn = torch::nn;
namespace F = torch::nn::functional;
using torch::Tensor;

constexpr int64_t shortest = 5, longest = 64, batches_to_run = 40;

// The target of each letter is the next one.
struct Sentences {
  std::vector<std::string> texts;
  int64_t size() const { return static_cast<int64_t>(texts.size()); }
  std::pair<Tensor, Tensor> get(size_t index) const {
    const std::string& text = texts[index];
    auto letters = torch::tensor(std::vector<int64_t>(text.begin(), text.end()));
    const int64_t length = letters.size(0) - 1;
    return {letters.narrow(0, 0, length), letters.narrow(0, 1, length)};
  }
};

Sentences read_sentences() {
  std::vector<std::string> texts(1);
  for (unsigned char c : examples::read_text(examples::repository_folder("") + "/moby200k.txt.gz")) {
    std::string& text = texts.back();
    if (c == '.' || c == ';' || c == '!' || c == '?')
      texts.emplace_back();
    else if (c > ' ' && c < 128)
      text += static_cast<char>(c);
    else if (!text.empty() && text.back() != ' ')
      text += ' ';
  }
  std::erase_if(texts, [](const std::string& text) {
    const auto letters = static_cast<int64_t>(text.size()) - 1;
    return letters < shortest || letters > longest;
  });
  return {texts};
}

struct ReaderImpl : nn::Module {
  nn::Embedding vectors = register_module("vectors", nn::Embedding(128, 16));
  nn::LSTM lstm = register_module("lstm", nn::LSTM(nn::LSTMOptions(16, 32).batch_first(true)));
  nn::Linear letters = register_module("letters", nn::Linear(32, 128));
  Tensor forward(const Tensor& text) { return letters(std::get<0>(lstm(vectors(text)))); }
};
TORCH_MODULE(Reader);

void train(bool in_buckets) {
  ivme::set_seed(42);
  ivme::Accelerator accelerator;

  const Sentences sentences = read_sentences();
  std::vector<int64_t> lengths, every_length(longest);
  for (const std::string& text : sentences.texts) lengths.push_back(static_cast<int64_t>(text.size()) - 1);
  std::iota(every_length.begin(), every_length.end(), 1);

  ivme::LoaderOptions options{.batch_size = 4, .shuffle = true};
  const auto buckets =
      ivme::length_buckets(in_buckets ? std::vector<int64_t>{16, 32, longest} : every_length, lengths);
  if (in_buckets) options.buckets = buckets;  // else batches hold any sentences, as long as the longest

  Reader net;
  auto [model, optimizer, batches] =
      accelerator.prepare(net, ivme::optim::AdamW(net->parameters(), {.lr = 1e-2}),
                          ivme::data_loader(sentences, options, ivme::pad_to_bucket(buckets)));
  ivme::Progress progress({.total = batches_to_run, .label = "lstm"});
  int64_t done = 0;
  for (auto& batch : batches) {
    auto loss = F::cross_entropy(model(batch.data).flatten(0, 1), batch.target.flatten());
    accelerator.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
    progress.advance(1, {{"loss", loss.item<double>()}});
    if (++done == batches_to_run) break;
  }
  if (accelerator.distributed_type() == ivme::DistributedType::XLA)
    accelerator.print(ivme::xla::metrics().programs, " programs");
}

int main(int argc, char** argv) {
  try {
    train(argc > 1 && std::string(argv[1]) == "--buckets");
  } catch (const std::exception& failure) {
    std::cerr << "error: " << failure.what() << std::endl;
    return 1;
  }
}
