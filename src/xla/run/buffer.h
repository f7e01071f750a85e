#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

#include "xla/compile/client.h"
#include "xla/graph.h"

struct PJRT_Buffer;

namespace ivme::xla {

// An array in the memory of one device; row-major for the host. Immutable until an execution consumes it
// (donation); then it is deleted: its memory belongs to a result, and only its shape is left. Keeps its
// client alive. Any thread, several at once; but no thread may read it while another donates it.
class Buffer {
 public:
  // Takes over `handle`; upload and execute make them.
  Buffer(std::shared_ptr<Client> client, PJRT_Buffer* handle, Shape shape, int device);
  ~Buffer();  // never waits: an execution that reads the buffer keeps the memory
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  Client& client() const { return *client_; }
  PJRT_Buffer* handle() const { return handle_; }
  const Shape& shape() const { return shape_; }
  int64_t bytes() const { return shape_.bytes(); }
  int device() const { return device_; }  // its index in the client

  bool is_deleted() const { return deleted_; }
  // Waits until the value is there. Throws Error when it was donated, or when the execution that should have
  // made it failed (with the plugin's text).
  void wait() const;
  bool is_ready() const;  // whether wait() would return at once; true for what is deleted
  // Waits, and copies bytes(), row-major, to `destination`, whose `size` in bytes must be just that. Throws
  // as wait().
  void download(void* destination, int64_t size) const;

  // Asks the plugin whether this execution consumed the memory; execute calls it for what it donates.
  void note_donation(std::shared_ptr<Run> by);

 private:
  void mark_deleted();

  std::shared_ptr<Client> client_;
  PJRT_Buffer* handle_;
  Shape shape_;
  int device_;
  std::atomic<bool> deleted_{false};
  std::shared_ptr<Run> consumed_by_;
};

// Copies shape.bytes() row-major bytes to the device; `data` may be freed on return. Booleans are bytes 0
// and 1. Throws Error for a null pointer (unless there is nothing to copy), a negative dimension, a device
// that is not there, and what the plugin refuses (memory).
std::shared_ptr<Buffer> upload(const std::shared_ptr<Client>& client, const void* data, const Shape& shape,
                               int device = 0);

}  // namespace ivme::xla
