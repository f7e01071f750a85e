// Libtorch's dropout multiplies with noise.bernoulli_(1 - p), or on a GPU calls native_dropout. Both are
// caught above the kernels of all devices, by a dispatch key that is switched on for a thread.
#include "accelerator/keyed_dropout.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_dropout.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <utility>

#include "process/seed_rank.h"
#include "support/threefry.h"

namespace ivme {
namespace {

constexpr auto key = c10::DispatchKey::TESTING_ONLY_GenericMode;
thread_local KeyedDropout* innermost = nullptr;

template <class Number>
void fill(at::Tensor& numbers, const std::array<uint32_t, 2>& stream, uint64_t first, double probability) {
  Number* data = numbers.mutable_data_ptr<Number>();
  at::parallel_for(0, numbers.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
    bernoulli(stream, first + static_cast<uint64_t>(begin), end - begin, static_cast<Number>(probability),
              data + begin);
  });
}

at::Tensor drawn_like(const at::Tensor& tensor, double probability) {
  const bool f64 = tensor.scalar_type() == at::kDouble;
  at::Tensor numbers = at::empty(tensor.sizes(), f64 ? at::kDouble : at::kFloat);
  innermost->draw(numbers, probability);
  return numbers.to(tensor.options());
}

at::Tensor& bernoulli_(at::Tensor& self, double probability, std::optional<at::Generator> generator) {
  c10::impl::ExcludeDispatchKeyGuard below(key);
  if (generator || !innermost) return self.bernoulli_(probability, generator);
  return self.copy_(drawn_like(self, probability));
}

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  c10::impl::ExcludeDispatchKeyGuard below(key);
  if (!train.value_or(true) || !innermost) return at::native_dropout(input, p, train);
  at::Tensor kept = drawn_like(input.detach(), 1 - p);
  at::Tensor mask = kept.to(at::kBool);
  return {input * (p < 1 ? kept.div_(1 - p) : kept), mask};
}

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, TESTING_ONLY_GenericMode, library) {
  library.impl("bernoulli_.float", bernoulli_);
  library.impl("native_dropout", native_dropout);
}

}  // namespace

struct KeyedDropout::Interception {
  c10::impl::IncludeDispatchKeyGuard guard{key};
};

KeyedDropout::KeyedDropout(std::shared_ptr<RandomPlace> place, const RowsOfRank& rows)
    : place_(std::move(place)),
      rows_(rows),
      outer_(std::exchange(innermost, this)),
      interception_(std::make_unique<Interception>()) {}

KeyedDropout::~KeyedDropout() { innermost = outer_; }

KeyedDropout* KeyedDropout::current() { return innermost; }

std::array<uint32_t, 2> KeyedDropout::next_stream() {
  RandomPlace& place = *place_;
  const uint64_t seed = at::globalContext().defaultGenerator(at::kCPU).current_seed();
  if (!std::exchange(place.drawn, true) && place.seeded != std::pair(seed, times_seeded())) {
    place.seeded = {seed, times_seeded()};
    place.step = 0;
  }
  const uint64_t number = place.seeded.first;
  return threefry({static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32)},
                  {static_cast<uint32_t>(place.step), static_cast<uint32_t>(place.position++)});
}

uint64_t KeyedDropout::first_of(int64_t count) const {
  const bool known = rows_.rows > 0 && count % rows_.rows == 0;
  return static_cast<uint64_t>(rows_.rank) *
         static_cast<uint64_t>(known ? rows_.full * (count / rows_.rows) : count);
}

void KeyedDropout::draw(at::Tensor& numbers, double probability) {
  const auto stream = next_stream();
  const uint64_t first = first_of(numbers.numel());
  if (numbers.scalar_type() == at::kDouble)
    fill<double>(numbers, stream, first, probability);
  else
    fill<float>(numbers, stream, first, probability);
}

}  // namespace ivme
