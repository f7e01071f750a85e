#pragma once
#include <string>
#include <unordered_set>

namespace torch::nn {
class Module;
}

namespace ivme {

// Parameters (by identity) whose gradients are sparse: weights of Embedding and EmbeddingBag with sparse set.
std::unordered_set<const void*> sparse_gradient_parameters(const torch::nn::Module& module);

bool has_batch_norm(const torch::nn::Module& module);
bool has_dropout(const torch::nn::Module& module);  // with a probability above 0

// First 16 hex digits of SHA-256 over the parameters' bytes in registration order.
std::string digest_of_parameters(const torch::nn::Module& module);

}  // namespace ivme
