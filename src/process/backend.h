#pragma once
#include <c10/util/intrusive_ptr.h>

#include <chrono>

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace ivme {

// Adds Gloo to the group for CPU tensors, and makes it the default. On one host it listens on loopback only.
void add_gloo_backend(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                      const c10::intrusive_ptr<c10d::Store>& store, std::chrono::milliseconds timeout,
                      bool one_host);

// Adds NCCL for CUDA tensors. Throws Error where libtorch has none (no_nccl_backend.cpp is linked then).
void add_nccl_backend(const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                      const c10::intrusive_ptr<c10d::Store>& store, std::chrono::milliseconds timeout);

}  // namespace ivme
