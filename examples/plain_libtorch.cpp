// One training loop: plain_libtorch.cpp with libtorch alone, readme_loop.cpp on any number of processes.
#include <torch/torch.h>

using namespace torch::data;
namespace nn = torch::nn;

int main(int argc, char** argv) {
  torch::manual_seed(42);
  torch::Device device(torch::cuda::is_available() ? torch::kCUDA : torch::kCPU);

  nn::Sequential net;
  net->push_back(nn::Flatten());
  net->push_back(nn::Linear(784, 256));
  net->push_back(nn::ReLU());
  net->push_back(nn::Linear(256, 10));
  net->to(device);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));

  auto images = datasets::MNIST(argc > 1 ? argv[1] : "fashion-mnist")
                    .map(transforms::Normalize<>(0.2860, 0.3530))
                    .map(transforms::Stack<>());
  auto loader = make_data_loader<samplers::RandomSampler>(images, 64);

  for (int epoch = 0; epoch < 2; ++epoch) {
    torch::Tensor loss;
    for (auto& batch : *loader) {
      loss = nn::functional::cross_entropy(net->forward(batch.data.to(device)), batch.target.to(device));
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
    }
    std::cout << "epoch " << epoch << ", loss " << loss.item<float>() << std::endl;
  }
}
