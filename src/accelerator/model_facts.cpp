#include "accelerator/model_facts.h"

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformerlayer.h>

#include "support/hash.h"

namespace ivme {
namespace {

namespace nn = torch::nn;

template <class Test>
bool any_module(const nn::Module& module, Test test) {
  for (const auto& one : const_cast<nn::Module&>(module).modules(/*include_self=*/false))
    if (test(one.get())) return true;
  return test(&module);
}

template <class... Ms>
bool drops(const nn::Module* module) {
  auto one = [](const auto* layer) { return layer && layer->options.p() > 0; };
  return (one(dynamic_cast<const Ms*>(module)) || ...);
}

template <class... Ms>
bool drops_between_layers(const nn::Module* module) {
  auto one = [](const auto* layer) { return layer && layer->options.dropout() > 0; };
  return (one(dynamic_cast<const Ms*>(module)) || ...);
}

}  // namespace

std::unordered_set<const void*> sparse_gradient_parameters(const nn::Module& module) {
  std::unordered_set<const void*> weights;
  any_module(module, [&](const nn::Module* one) {
    if (auto embedding = dynamic_cast<const nn::EmbeddingImpl*>(one);
        embedding && embedding->options.sparse())
      weights.insert(embedding->weight.unsafeGetTensorImpl());
    if (auto bag = dynamic_cast<const nn::EmbeddingBagImpl*>(one); bag && bag->options.sparse())
      weights.insert(bag->weight.unsafeGetTensorImpl());
    return false;
  });
  return weights;
}

bool has_batch_norm(const nn::Module& module) {
  return any_module(module, [](const nn::Module* one) {
    return dynamic_cast<const nn::BatchNorm1dImpl*>(one) || dynamic_cast<const nn::BatchNorm2dImpl*>(one) ||
           dynamic_cast<const nn::BatchNorm3dImpl*>(one);
  });
}

bool has_dropout(const nn::Module& module) {
  return any_module(module, [](const nn::Module* one) {
    return drops<nn::DropoutImpl, nn::Dropout2dImpl, nn::Dropout3dImpl, nn::AlphaDropoutImpl,
                 nn::FeatureAlphaDropoutImpl>(one) ||
           drops_between_layers<nn::RNNImpl, nn::LSTMImpl, nn::GRUImpl, nn::MultiheadAttentionImpl>(one);
  });
}

std::string digest_of_parameters(const nn::Module& module) {
  Sha256 digest;
  for (const at::Tensor& parameter : module.parameters()) {
    at::Tensor bytes = parameter.detach().cpu().contiguous();
    digest.add(bytes.const_data_ptr(), bytes.nbytes());
  }
  return digest.hex16();
}

}  // namespace ivme
