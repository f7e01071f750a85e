// Operators that are written with others here, since XLA needs no kernel of its own for them. What autograd
// may see through is registered above it, so that its gradient is recorded as well, and needs no row either.
#include <ATen/ATen.h>
#include <ATen/ops/channel_shuffle_native.h>
#include <ATen/ops/diag_embed_native.h>
#include <ATen/ops/diagonal_copy_native.h>
#include <ATen/ops/diagonal_scatter_native.h>
#include <ATen/ops/pixel_shuffle_native.h>
#include <ATen/ops/pixel_unshuffle_native.h>
#include <ATen/ops/select_scatter_native.h>
#include <ATen/ops/slice_scatter_native.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "ivme/error.h"
#include "xla/step.h"
#include "xla/trace/record.h"
#include "xla/trace/storage.h"

namespace ivme::xla {
namespace {

using at::Tensor;
using MaybeTensor = std::optional<Tensor>;

// --- factories: of the host, and sent as inputs, so that their numbers are no part of the program
// ---------------

template <class Factory>
Tensor& filled(Tensor& out, Factory factory) {
  replace(out, to_device(factory(at::TensorOptions().dtype(out.scalar_type()))), nullptr);
  return out;
}

Tensor& linspace_out(const at::Scalar& start, const at::Scalar& end, int64_t steps, Tensor& out) {
  return filled(out, [&](auto options) { return at::linspace(start, end, steps, options); });
}

Tensor& logspace_out(const at::Scalar& start, const at::Scalar& end, int64_t steps, double base,
                     Tensor& out) {
  return filled(out, [&](auto options) { return at::logspace(start, end, steps, base, options); });
}

template <Tensor (*factory)(int64_t, int64_t, int64_t, at::TensorOptions)>
Tensor indices(int64_t rows, int64_t columns, int64_t offset, std::optional<at::ScalarType> type,
               std::optional<at::Layout>, std::optional<at::Device>, std::optional<bool>) {
  auto options = at::TensorOptions().dtype(type.value_or(at::kLong));
  return make_tensor(to_device(factory(rows, columns, offset, options)), nullptr);
}

Tensor& eye_of_sizes_out(int64_t rows, int64_t columns, Tensor& out) {
  Tensor ones = at::zeros({rows, columns}, out.options());
  ones.diagonal().fill_(1);
  replace(out, read(ones), nullptr);
  return out;
}
Tensor& eye_out(int64_t size, Tensor& out) { return eye_of_sizes_out(size, size, out); }

Tensor zero_tensor(at::IntArrayRef sizes, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                   std::optional<at::Device> device, std::optional<bool>) {
  return at::zeros(sizes, at::TensorOptions().dtype(type).device(device));
}

// --- sums
// ----------------------------------------------------------------------------------------------------

Tensor count_nonzero(const Tensor& self, at::IntArrayRef dims) { return self.ne(0).sum(dims); }

Tensor nansum(const Tensor& self, at::OptionalIntArrayRef dims, bool keep,
              std::optional<at::ScalarType> type) {
  return self.is_floating_point() ? at::where(self.isnan(), 0, self).sum(dims, keep, type)
                                  : self.sum(dims, keep, type);
}

Tensor trace(const Tensor& self) { return self.diagonal().sum(); }

Tensor addbmm(const Tensor& self, const Tensor& a, const Tensor& b, const at::Scalar& beta,
              const at::Scalar& alpha) {
  return at::add(self * beta, at::bmm(a, b).sum(0), alpha);
}

Tensor bilinear(const Tensor& a, const Tensor& b, const Tensor& weight, const MaybeTensor& bias) {
  at::DimVector sizes(a.sizes());
  sizes.back() = weight.size(0);
  Tensor y = at::einsum("ni,oij,nj->no", {a.reshape({-1, a.size(-1)}), weight, b.reshape({-1, b.size(-1)})});
  if (bias && bias->defined()) y = y + *bias;
  return y.view(sizes);
}

Tensor cross(const Tensor& a, const Tensor& b, int64_t dim) {
  auto both = at::broadcast_tensors({a, b});
  auto rolled = [&](size_t i, int64_t by) { return both[i].roll(by, dim); };
  return rolled(0, -1) * rolled(1, -2) - rolled(0, -2) * rolled(1, -1);
}

// --- reductions whose gradients libtorch works out by reading values on the host, which would cut the step
// --------

Tensor greatest(const Tensor& self) { return at::amax(self, at::IntArrayRef{}); }
Tensor least(const Tensor& self) { return at::amin(self, at::IntArrayRef{}); }

// The gradient is shared by all elements that are the median.
Tensor median(const Tensor& self) {
  const Tensor value = [&] {
    at::AutoDispatchBelowADInplaceOrView below;
    return at::median(self.detach());
  }();
  const Tensor mask = self.eq(value);
  Tensor same = at::where(mask, self, 0).sum() / mask.sum();
  return self.is_floating_point() ? value + (same - same.detach()) : value;
}

// The product of all other elements along a dimension, of zeros too: of those before times of those after.
Tensor product_of_others(const Tensor& x, int64_t dim) {
  Tensor one = at::ones_like(x.narrow(dim, 0, 1));
  auto before = [&](const Tensor& y) {
    return at::cat({one, y.narrow(dim, 0, y.size(dim) - 1).cumprod(dim)}, dim);
  };
  return before(x) * before(x.flip(dim)).flip(dim);
}

class Product : public torch::autograd::Function<Product> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, int64_t dim) {
    at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x});
    context->saved_data["dim"] = dim;
    return at::prod(x, dim, /*keepdim=*/true);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] *
                product_of_others(context->get_saved_variables()[0], context->saved_data["dim"].toInt()),
            Tensor()};
  }
};

Tensor product_along(const Tensor& self, int64_t dim, bool keep, std::optional<at::ScalarType> type) {
  const at::ScalarType own = self.scalar_type();
  Tensor x = self.to(type.value_or(at::isIntegralType(own, /*includeBool=*/true) ? at::kLong : own));
  if (x.dim() == 0) return x.clone();
  dim = at::maybe_wrap_dim(dim, x.dim());
  Tensor y = x.size(dim) == 0 ? at::ones_like(x.sum(dim, true)) : Product::apply(x, dim);
  return keep ? y : y.squeeze(dim);
}
Tensor product(const Tensor& self, std::optional<at::ScalarType> type) {
  return product_along(self.flatten(), 0, false, type);
}

// --- distances
// -----------------------------------------------------------------------------------------------

Tensor cdist(const Tensor& a, const Tensor& b, double p, std::optional<int64_t>) {
  return at::linalg_vector_norm(a.unsqueeze(-2) - b.unsqueeze(-3), p, at::IntArrayRef{-1});
}

Tensor pdist(const Tensor& self, double p) {
  Tensor pairs = at::triu_indices(self.size(0), self.size(0), 1).to(self.device());
  return at::linalg_vector_norm(self.index_select(0, pairs[0]) - self.index_select(0, pairs[1]), p,
                                at::IntArrayRef{-1});
}

// --- masks and indices
// ---------------------------------------------------------------------------------------

Tensor mask_filled(const Tensor& self, const Tensor& mask, const Tensor& value) {
  if (value.dim() != 0)
    throw Error("masked_fill was called with a value of sizes " + c10::str(value.sizes()) +
                ". It must have no dimensions; use where(mask, a, b) for others.");
  return at::where(mask, value.to(self.scalar_type()), self);
}
Tensor& fill_mask(Tensor& self, const Tensor& mask, const Tensor& value) {
  return self.copy_(mask_filled(self, mask, value));
}

// The elements of source, in order, where the mask is true.
Tensor mask_scattered(const Tensor& self, const Tensor& mask, const Tensor& source) {
  auto both = at::broadcast_tensors({self, mask});
  Tensor places = both[1].flatten().to(at::kLong).cumsum(0).sub(1).clamp(0, source.numel() - 1);
  return at::where(both[1], source.flatten().index_select(0, places).view(both[0].sizes()), both[0]);
}
Tensor& scatter_mask(Tensor& self, const Tensor& mask, const Tensor& source) {
  return self.copy_(mask_scattered(self, mask, source));
}

// x[mask] = number is where(mask, number, x): the only index by a mask whose result has a known size.
bool put_one_number(const Tensor& self, const c10::List<std::optional<Tensor>>& indices, const Tensor& value,
                    bool accumulate) {
  int64_t first = -1;
  Tensor mask;
  for (size_t i = 0; i < indices.size(); ++i) {
    const std::optional<Tensor> index = indices.get(i);
    if (!index || !index->defined()) continue;
    if (first >= 0 || index->scalar_type() != at::kBool) return false;
    first = static_cast<int64_t>(i);
    mask = *index;
  }
  if (first < 0 || value.numel() != 1 || first + mask.dim() > self.dim() ||
      self.sizes().slice(static_cast<size_t>(first), static_cast<size_t>(mask.dim())) != mask.sizes())
    return false;
  while (mask.dim() < self.dim() - first) mask = mask.unsqueeze(-1);
  Tensor number = value.reshape({}).to(self.scalar_type());
  self.copy_(at::where(mask.to(self.device()), accumulate ? self + number : number, self));
  return true;
}

void index_put(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  auto arguments = torch::jit::last(*stack, 5);
  Tensor self = arguments[0].toTensor();
  if (!put_one_number(self, arguments[1].to<c10::List<std::optional<Tensor>>>(), arguments[2].toTensor(),
                      arguments[3].toBool()))
    return record(handle, keys, stack);
  torch::jit::drop(*stack, 5);
  stack->emplace_back(std::move(self));
}

Tensor take(const Tensor& self, const Tensor& index) {
  Tensor flat = index.flatten();
  flat = at::where(flat.lt(0), flat + self.numel(), flat);
  return self.flatten().index_select(0, flat).view(index.sizes());
}

// How many of the boundaries, along the last dimension, come before each value.
Tensor search(const Tensor& boundaries, const Tensor& values, bool as_int, bool right) {
  Tensor sorted = boundaries.dim() == 1 ? boundaries : boundaries.unsqueeze(-2), each = values.unsqueeze(-1);
  return (right ? sorted.le(each) : sorted.lt(each)).sum(-1).to(as_int ? at::kInt : at::kLong);
}
Tensor searchsorted(const Tensor& boundaries, const Tensor& values, bool as_int, bool right,
                    std::optional<c10::string_view> side, const MaybeTensor& sorter) {
  Tensor sorted = sorter && sorter->defined() ? boundaries.gather(-1, *sorter) : boundaries;
  return search(sorted, values, as_int, right || side == "right");
}
Tensor bucketize(const Tensor& values, const Tensor& boundaries, bool as_int, bool right) {
  return search(boundaries, values, as_int, right);
}

// --- pooling and sampling
// ------------------------------------------------------------------------------------

Tensor unpool(const Tensor& self, const Tensor& places, at::IntArrayRef sizes) {
  const auto spatial = static_cast<int64_t>(sizes.size());
  at::DimVector flat(self.sizes().slice(0, static_cast<size_t>(self.dim() - spatial))), result = flat;
  flat.push_back(c10::multiply_integers(sizes));
  result.append(sizes.begin(), sizes.end());
  return at::scatter(at::zeros(flat, self.options()), -1, places.flatten(-spatial), self.flatten(-spatial))
      .view(result);
}
// The gradient of adaptive_max_pool.
template <int64_t spatial>
Tensor back_to_places(const Tensor& gradient, const Tensor& self, const Tensor& places) {
  return at::zeros_like(self)
      .flatten(-spatial)
      .scatter_add(-1, places.flatten(-spatial), gradient.flatten(-spatial))
      .view(self.sizes());
}

Tensor unpool_3d(const Tensor& self, const Tensor& places, at::IntArrayRef sizes, at::IntArrayRef,
                 at::IntArrayRef) {
  return unpool(self, places, sizes);
}

// A coordinate in [−1, 1] as a position among `size` pixels.
Tensor position(const Tensor& coordinate, int64_t size, int64_t padding, bool corners) {
  const auto pixels = static_cast<double>(size);
  Tensor x = corners ? (coordinate + 1) * ((pixels - 1) / 2) : ((coordinate + 1) * pixels - 1) * 0.5;
  if (padding == 2) {  // reflected at the borders
    const double low = corners ? 0 : -0.5, span = corners ? pixels - 1 : pixels;
    if (span == 0) return at::zeros_like(x);
    Tensor distance = (x - low).abs(), rest = distance.fmod(span);
    Tensor is_even = (distance / span).floor().remainder(2).eq(0);
    x = at::where(is_even, rest, span - rest) + low;
  }
  return padding == 0 ? x : x.clamp(0, pixels - 1);
}

Tensor grid_sampler_2d(const Tensor& input, const Tensor& grid, int64_t mode, int64_t padding, bool corners) {
  if (mode == 2)
    throw Error(
        "grid_sample was called on xla with bicubic interpolation, which is not there yet. Use bilinear or "
        "nearest.");
  const int64_t batch = input.size(0), channels = input.size(1), height = input.size(2),
                width = input.size(3);
  Tensor x = position(grid.select(3, 0), width, padding, corners);
  Tensor y = position(grid.select(3, 1), height, padding, corners);
  const at::DimVector sizes{batch, channels, grid.size(1), grid.size(2)};
  auto pixels = [&](const Tensor& row, const Tensor& column) {
    Tensor inside = row.ge(0) & row.lt(height) & column.ge(0) & column.lt(width);
    Tensor index = row.clamp(0, height - 1).to(at::kLong) * width + column.clamp(0, width - 1).to(at::kLong);
    Tensor places = index.view({batch, 1, -1}).expand({batch, channels, -1});
    return at::where(inside.unsqueeze(1), input.flatten(2).gather(2, places).view(sizes), 0);
  };
  if (mode == 1) return pixels(y.round(), x.round());
  Tensor left = x.floor().detach(), top = y.floor().detach();
  Tensor right_share = (x - left).unsqueeze(1), low_share = (y - top).unsqueeze(1);
  auto row = [&](const Tensor& at_row) {
    return pixels(at_row, left) * (1 - right_share) + pixels(at_row, left + 1) * right_share;
  };
  return row(top) * (1 - low_share) + row(top + 1) * low_share;
}

// --- layers and losses
// ---------------------------------------------------------------------------------------

// Modes: 0 sum, 1 mean, 2 maximum.
std::tuple<Tensor, Tensor, Tensor, Tensor> embedding_bag(const Tensor& weight, const Tensor& indices,
                                                         const Tensor& offsets, bool scale_by_frequency,
                                                         int64_t mode, bool sparse,
                                                         const MaybeTensor& sample_weights, bool last_offset,
                                                         int64_t padding) {
  if (scale_by_frequency || sparse)
    throw Error(
        "embedding_bag was called on xla with sparse gradients, or gradients scaled by frequency, which are "
        "not there. Leave sparse and scale_grad_by_freq false.");
  const int64_t bags = offsets.size(0) - (last_offset ? 1 : 0);
  Tensor starts = last_offset ? offsets.slice(0, 0, bags) : offsets;
  Tensor bag = at::arange(indices.size(0), offsets.options()).unsqueeze(1).ge(starts).sum(1) - 1;
  Tensor rows = weight.index_select(0, indices), counted = indices.ne(padding < 0 ? -1 : padding);
  if (sample_weights && sample_weights->defined()) rows = rows * sample_weights->unsqueeze(1);
  Tensor nothing = at::zeros({bags, weight.size(1)}, weight.options());
  Tensor size = at::zeros({bags}, offsets.options()).index_add(0, bag, counted.to(offsets.scalar_type()));
  Tensor output;
  if (mode == 2) {
    rows = at::where(counted.unsqueeze(1), rows, -INFINITY);
    output = nothing.scatter_reduce(0, bag.unsqueeze(1).expand_as(rows), rows, "amax", false);
    output = at::where(size.eq(0).unsqueeze(1), 0, output);
  } else {
    output = nothing.index_add(0, bag, at::where(counted.unsqueeze(1), rows, 0));
    if (mode == 1) output = output / size.clamp_min(1).unsqueeze(1);
  }
  return {output, bag, size, at::zeros({0}, offsets.options())};
}

Tensor rrelu(const Tensor& self, Tensor& noise, const at::Scalar& lower, const at::Scalar& upper, bool train,
             std::optional<at::Generator>) {
  if (!train) return at::leaky_relu(self, (lower.toDouble() + upper.toDouble()) / 2);
  Tensor slope = at::empty_like(self).uniform_(lower.toDouble(), upper.toDouble());
  Tensor used = at::where(self.gt(0), 1, slope).detach();
  noise.copy_(used);
  return self * used;
}

Tensor reduced(const Tensor& losses, int64_t reduction) {
  return reduction == at::Reduction::Mean  ? losses.mean()
         : reduction == at::Reduction::Sum ? losses.sum()
                                           : losses;
}

Tensor soft_margin_loss(const Tensor& self, const Tensor& target, int64_t reduction) {
  return reduced((-target * self).exp().log1p(), reduction);
}

// Rows that are looked up are scaled down to this norm.
Tensor& embedding_renorm_(Tensor& weight, const Tensor& indices, double most, double p) {
  Tensor norm = at::linalg_vector_norm(weight, p, at::IntArrayRef{1}, /*keepdim=*/true);
  Tensor used = at::zeros({weight.size(0)}, weight.options()).index_fill(0, indices.flatten(), 1);
  Tensor applies = norm.gt(most) & used.gt(0).unsqueeze(1);
  return weight.mul_(at::where(applies, most / (norm + 1e-7), 1));
}

Tensor multi_margin_loss(const Tensor& self, const Tensor& target, const at::Scalar& p,
                         const at::Scalar& margin, const MaybeTensor& weight, int64_t reduction) {
  Tensor x = at::atleast_2d(self), places = target.reshape({-1, 1});
  Tensor over = (x - x.gather(1, places) + margin).clamp_min(0).pow(p);
  if (weight && weight->defined()) over = over * weight->index_select(0, places.flatten()).unsqueeze(1);
  over = over.scatter(1, places, 0).sum(1) / x.size(1);
  return reduced(self.dim() < 2 ? over.squeeze(0) : over, reduction);
}

// The classes of a sample are those before its first −1.
std::tuple<Tensor, Tensor> multilabel_margin_loss(const Tensor& self, const Tensor& target,
                                                  int64_t reduction) {
  Tensor x = at::atleast_2d(self), classes = at::atleast_2d(target);
  Tensor given = classes.ge(0).to(at::kLong).cumprod(1).to(at::kBool);
  Tensor places = at::where(given, classes, 0);
  Tensor is_target = at::zeros_like(classes).scatter_add(1, places, given.to(classes.scalar_type())).gt(0);
  Tensor over = (1 - x.gather(1, places).unsqueeze(2) + x.unsqueeze(1)).clamp_min(0);
  Tensor counts = given.unsqueeze(2) & is_target.logical_not().unsqueeze(1);
  Tensor losses = at::where(counts, over, 0).sum({1, 2}) / x.size(1);
  return {reduced(self.dim() < 2 ? losses.squeeze(0) : losses, reduction),
          is_target.to(self.scalar_type()).view(target.sizes())};
}

// What autograd sees through. Tensors of inference mode come to the second library.
void implement(torch::Library& library) {
  library.impl("nansum", nansum);
  library.impl("trace", trace);
  library.impl("addbmm", addbmm);
  library.impl("bilinear", bilinear);
  library.impl("linalg_cross", cross);
  library.impl("_cdist_forward", cdist);
  library.impl("_pdist_forward", pdist);
  library.impl("masked_fill.Tensor", mask_filled);
  library.impl("masked_fill_.Tensor", fill_mask);
  library.impl("masked_scatter", mask_scattered);
  library.impl("masked_scatter_", scatter_mask);
  library.impl("take", take);
  library.impl("max_unpool2d", unpool);
  library.impl("max_unpool3d", unpool_3d);
  library.impl("grid_sampler_2d", grid_sampler_2d);
  library.impl("_embedding_bag", embedding_bag);
  library.impl("_embedding_bag_forward_only", embedding_bag);
  library.impl("rrelu_with_noise", rrelu);
  library.impl("soft_margin_loss", soft_margin_loss);
  library.impl("multi_margin_loss", multi_margin_loss);
  library.impl("multilabel_margin_loss_forward", multilabel_margin_loss);
}
TORCH_LIBRARY_IMPL(aten, AutogradXLA, library) {
  implement(library);
  library.impl("max", greatest);
  library.impl("min", least);
  library.impl("median", median);
  library.impl("prod", product);
  library.impl("prod.dim_int", product_along);
}
TORCH_LIBRARY_IMPL(aten, XLA, library) {
  implement(library);
  library.impl("linspace.out", linspace_out);
  library.impl("logspace.out", logspace_out);
  library.impl("eye.out", eye_out);
  library.impl("eye.m_out", eye_of_sizes_out);
  library.impl("tril_indices", indices<at::tril_indices>);
  library.impl("triu_indices", indices<at::triu_indices>);
  library.impl("_efficientzerotensor", zero_tensor);
  library.impl("count_nonzero.dim_IntList", count_nonzero);
  library.impl("embedding_renorm_", embedding_renorm_);
  library.impl("searchsorted.Tensor", searchsorted);
  library.impl("bucketize.Tensor", bucketize);
  library.impl("adaptive_max_pool2d_backward", back_to_places<2>);
  library.impl("adaptive_max_pool3d_backward", back_to_places<3>);
  library.impl("_index_put_impl_", torch::CppFunction::makeFromBoxedFunction<&index_put>());
  // libtorch writes these with others too, but for devices that it lists.
  library.impl("channel_shuffle", at::native::channel_shuffle);
  library.impl("diag_embed", at::native::diag_embed);
  library.impl("diagonal_copy", at::native::diagonal_copy);
  library.impl("diagonal_scatter", at::native::diagonal_scatter);
  library.impl("pixel_shuffle", at::native::math_pixel_shuffle);
  library.impl("pixel_unshuffle", at::native::math_pixel_unshuffle);
  library.impl("select_scatter", at::native::select_scatter_symint);
  library.impl("slice_scatter", at::native::slice_scatter);
}

}  // namespace

void register_composites() {}

}  // namespace ivme::xla
