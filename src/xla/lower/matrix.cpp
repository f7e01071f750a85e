#include "xla/lower/formula.h"
#include "xla/lower/promotion.h"
#include "xla/lower/rows.h"

namespace ivme::xla {
namespace {

using Result = std::vector<Hlo>;

// Sums of half-precision products are kept in f32, as PyTorch's and the hardware's kernels do.
Hlo product_of(const Hlo& a, const Hlo& b, const DotDimensions& dimensions) {
  return a.emitter->dot(a, b, dimensions, compute_type(a.dtype()));
}

Hlo matrix_product(const Hlo& a, const Hlo& b) { return product_of(a, b, {{}, {}, {1}, {0}}); }
Hlo batched_product(const Hlo& a, const Hlo& b) { return product_of(a, b, {{0}, {0}, {2}, {1}}); }
Hlo vector_product(const Hlo& a, const Hlo& b) { return product_of(a, b, {{}, {}, {a.rank() - 1}, {0}}); }
Hlo outer_product(const Hlo& a, const Hlo& b) {
  return product_of(unsqueeze(a, 1), unsqueeze(b, 0), {{}, {}, {1}, {0}});
}

template <Hlo (*multiply)(const Hlo&, const Hlo&)>
Result plain(const Call& call) {
  return {convert(multiply(call.tensor(0), call.tensor(1)), call.tensor(0).dtype())};
}

// beta · self + alpha · product; beta 0 ignores self, even where it is not a number.
template <Hlo (*multiply)(const Hlo&, const Hlo&)>
Result added(const Call& call) {
  const Hlo& self = call.tensor(0);
  Hlo product = multiply(call.tensor(1), call.tensor(2));
  Dtype compute = product.dtype();
  if (!call.is_constant(4, 1)) product = product * call.scalar(4, compute);
  if (!call.is_constant(3, 0)) {
    Hlo bias = convert(self, compute);
    if (!call.is_constant(3, 1)) bias = bias * call.scalar(3, compute);
    product = product + bias;
  }
  return {convert(product, self.dtype())};
}

}  // namespace

Rows matrix_rows() {
  return {
      {"aten::mm", plain<matrix_product>},    {"aten::bmm", plain<batched_product>},
      {"aten::mv", plain<vector_product>},    {"aten::dot", plain<vector_product>},
      {"aten::addmm", added<matrix_product>}, {"aten::baddbmm", added<batched_product>},
      {"aten::addmv", added<vector_product>}, {"aten::addr", added<outer_product>},
  };
}

}  // namespace ivme::xla
