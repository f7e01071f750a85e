// One training loop: plain_libtorch.cpp with libtorch alone, readme_loop.cpp on any number of processes.
#include <ivme/ivme.h>
#include <torch/torch.h>

using namespace torch::data;
namespace nn = torch::nn;

int main(int argc, char** argv) {
  ivme::set_seed(42);
  ivme::Accelerator accelerator;

  nn::Sequential net;
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(784, 256));
  net->push_back(nn::ReLU());
  net->push_back(nn::Linear(256, 10));
  auto model = accelerator.prepare(net);
  auto optimizer = accelerator.prepare(ivme::optim::SGD(net->parameters(), {.lr = 0.05, .momentum = 0.9}));

  auto images = datasets::MNIST(argc > 1 ? argv[1] : "fashion-mnist")
                    .map(transforms::Normalize<>(0.2860, 0.3530))
                    .map(transforms::Stack<>());
  auto loader = accelerator.prepare(ivme::data_loader(images, {.batch_size = 64, .shuffle = true}));

  for (int epoch = 0; epoch < 2; ++epoch) {
    torch::Tensor loss;
    for (auto& batch : loader) {
      loss = nn::functional::cross_entropy(model(batch.data), batch.target);
      accelerator.backward(loss);
      optimizer.step();
      optimizer.zero_grad();
    }
    accelerator.print("epoch ", epoch, ", loss ", loss.item<float>());
  }
}
