// The program of an outside project, built by the CMakeLists.txt of both folders beside this file: it learns
// y = a + b.
#include <torch/torch.h>

#include <cstdio>

#include "ivme/ivme.h"

int main() {
  ivme::set_seed(42);
  ivme::Accelerator accelerator({.device = "cpu"});
  torch::nn::Linear net(2, 1);
  auto [model, optimizer] = accelerator.prepare(net, ivme::optim::SGD(net->parameters(), {.lr = 0.2}));

  torch::Tensor loss;
  for (int step = 0; step < 200; ++step) {
    const auto x = torch::randn({64, 2});
    loss = torch::mse_loss(model(x), x.sum(1, /*keepdim=*/true));
    accelerator.backward(loss);
    optimizer.step();
    optimizer.zero_grad();
  }
  const bool learned = loss.item<float>() < 1e-8;
  std::printf("outside program: ivme %s, %s\n", ivme::version(), learned ? "learned" : "did not learn");
  return learned ? 0 : 1;
}
