#include "xla/run/buffer.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "ivme/error.h"
#include "xla/compile/pjrt_call.h"

namespace ivme::xla {
namespace {

PJRT_Buffer_Type type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return PJRT_Buffer_Type_F32;
    case Dtype::f64:
      return PJRT_Buffer_Type_F64;
    case Dtype::f16:
      return PJRT_Buffer_Type_F16;
    case Dtype::bf16:
      return PJRT_Buffer_Type_BF16;
    case Dtype::i64:
      return PJRT_Buffer_Type_S64;
    case Dtype::i32:
      return PJRT_Buffer_Type_S32;
    case Dtype::i16:
      return PJRT_Buffer_Type_S16;
    case Dtype::i8:
      return PJRT_Buffer_Type_S8;
    case Dtype::u8:
      return PJRT_Buffer_Type_U8;
    case Dtype::boolean:
      return PJRT_Buffer_Type_PRED;
  }
  return PJRT_Buffer_Type_INVALID;
}

// A device's own layout need not be row-major.
void read_by_transfer(const PjrtApi& api, PJRT_Buffer* buffer, const Shape& shape, void* destination) {
  std::vector<int64_t> minor_to_major(shape.dims.size());
  for (size_t i = 0; i < minor_to_major.size(); ++i)
    minor_to_major[i] = static_cast<int64_t>(minor_to_major.size() - 1 - i);
  auto row_major = sized<PJRT_Buffer_MemoryLayout>();
  row_major.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  row_major.tiled = sized<PJRT_Buffer_MemoryLayout_Tiled>();
  row_major.tiled.minor_to_major = minor_to_major.data();
  row_major.tiled.minor_to_major_size = minor_to_major.size();
  auto args = sized<PJRT_Buffer_ToHostBuffer_Args>();
  args.src = buffer;
  args.host_layout = &row_major;
  args.dst = destination;
  args.dst_size = static_cast<size_t>(shape.bytes());
  const char* asked = "Copying an array to the host";
  call(api, &PJRT_Api::PJRT_Buffer_ToHostBuffer, args, asked);
  if (const auto failure = await(api, args.event)) throw_failure(api, *failure, asked);
}

const void* host_memory(const PjrtApi& api, PJRT_Buffer* buffer) {
  auto args = sized<PJRT_Buffer_UnsafePointer_Args>();
  args.buffer = buffer;
  call(api, &PJRT_Api::PJRT_Buffer_UnsafePointer, args, "Reading an array in host memory");
  return reinterpret_cast<const void*>(args.buffer_pointer);
}

}  // namespace

Buffer::Buffer(std::shared_ptr<Client> client, PJRT_Buffer* handle, Shape shape, int device)
    : client_(std::move(client)), handle_(handle), shape_(std::move(shape)), device_(device) {
  ++client_->live_buffers_;
  client_->live_bytes_ += bytes();
}

Buffer::~Buffer() {
  mark_deleted();
  if (consumed_by_ && !consumed_by_->has_ended()) {
    consumed_by_->add(handle_);
    return;
  }
  auto args = sized<PJRT_Buffer_Destroy_Args>();
  args.buffer = handle_;
  failure_of(client_->api(), client_->api().table->PJRT_Buffer_Destroy(&args));
}

void Buffer::mark_deleted() {
  if (deleted_.exchange(true)) return;
  --client_->live_buffers_;
  client_->live_bytes_ -= bytes();
}

void Buffer::wait() const {
  if (is_deleted())
    throw Error(
        "An array " + to_string(shape_) +
        " was read after a program consumed it: it was donated, and its memory holds a result now. Read the "
        "result, or copy the array before the step.");
  const char* asked = "Computing an array";
  auto args = sized<PJRT_Buffer_ReadyEvent_Args>();
  args.buffer = handle_;
  call(client_->api(), &PJRT_Api::PJRT_Buffer_ReadyEvent, args, asked);
  if (const auto failure = await(client_->api(), args.event)) throw_failure(client_->api(), *failure, asked);
}

bool Buffer::is_ready() const {
  if (is_deleted()) return true;
  auto args = sized<PJRT_Buffer_ReadyEvent_Args>();
  args.buffer = handle_;
  call(client_->api(), &PJRT_Api::PJRT_Buffer_ReadyEvent, args, "Computing an array");
  const bool ready = is_done(client_->api(), args.event);
  auto destroy = sized<PJRT_Event_Destroy_Args>();
  destroy.event = args.event;
  call(client_->api(), &PJRT_Api::PJRT_Event_Destroy, destroy, "Computing an array");
  return ready;
}

void Buffer::download(void* destination, int64_t size) const {
  if (size != bytes() || (destination == nullptr && size > 0))
    throw Error("An array " + to_string(shape_) + " of " + std::to_string(bytes()) +
                " bytes was to be read into " +
                (destination == nullptr ? "a null pointer" : std::to_string(size) + " bytes") +
                ". Give memory of exactly its size.");
  wait();
  if (size == 0) return;
  if (client_->on_host())
    std::memcpy(destination, host_memory(client_->api(), handle_), static_cast<size_t>(size));
  else
    read_by_transfer(client_->api(), handle_, shape_, destination);
}

void Buffer::note_donation(std::shared_ptr<Run> by) {
  auto args = sized<PJRT_Buffer_IsDeleted_Args>();
  args.buffer = handle_;
  call(client_->api(), &PJRT_Api::PJRT_Buffer_IsDeleted, args, "Asking for a donated array");
  consumed_by_ = std::move(by);
  if (args.is_deleted) mark_deleted();
}

std::shared_ptr<Buffer> upload(const std::shared_ptr<Client>& client, const void* data, const Shape& shape,
                               int device) {
  for (const int64_t dim : shape.dims)
    if (dim < 0)
      throw Error("An array " + to_string(shape) +
                  " was to be copied to the device: a dimension is negative. Give "
                  "sizes of 0 or more.");
  if (data == nullptr && shape.bytes() > 0)
    throw Error("An array " + to_string(shape) +
                " was to be copied to the device from a null pointer. Give its data.");
  const char nothing = 0;
  const char* asked = "Copying an array to the device";
  auto args = sized<PJRT_Client_BufferFromHostBuffer_Args>();
  args.client = client->handle();
  args.data = data == nullptr ? &nothing : data;
  args.type = type_of(shape.dtype);
  args.dims = shape.dims.data();
  args.num_dims = shape.dims.size();
  args.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  args.device = client->device(device);
  call(client->api(), &PJRT_Api::PJRT_Client_BufferFromHostBuffer, args, asked);
  auto buffer = std::make_shared<Buffer>(client, args.buffer, shape, device);
  if (const auto failure = await(client->api(), args.done_with_host_buffer))
    throw_failure(client->api(), *failure, asked);
  return buffer;
}

}  // namespace ivme::xla
