#pragma once

namespace ivme::xla {

// For a device whose memory is the host's. XLA's CPU plugin allocates all that a program needs anew for each
// run, and glibc by default takes blocks above 32 MiB from the kernel each time and gives them back: mapping
// and clearing their pages took a quarter of a transformer's step. From now on this process keeps what it
// frees for its next blocks (mallopt: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD). Does nothing where the environment
// sets one of the two, with MALLOC_MMAP_THRESHOLD_, MALLOC_TRIM_THRESHOLD_ or GLIBC_TUNABLES.
void keep_freed_memory();

}  // namespace ivme::xla
