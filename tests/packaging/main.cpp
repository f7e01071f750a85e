// The program of an outside project: both CMakeLists.txt beside this file build it.
#include <torch/torch.h>

#include <cstdio>

#include "ivme/version.h"

int main() {
  const auto sum = torch::ones({3, 4}).sum().item<float>();
  if (sum != 12) return 1;
  std::printf("outside program: ivme %s, sum %g\n", ivme::version(), sum);
}
