#include "data/batch_shard.h"

#include <algorithm>
#include <limits>
#include <string>

#include "ivme/error.h"

namespace ivme {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return a / b + (a % b != 0); }

void check_rank(int num_processes, int rank) {
  if (num_processes < 1) {
    throw Error("Sharding over " + std::to_string(num_processes) +
                " processes was asked, and there must be at least 1. Give num_processes 1 or more.");
  }
  if (rank < 0 || rank >= num_processes) {
    throw Error("The shard of rank " + std::to_string(rank) + " of " + std::to_string(num_processes) +
                " processes was asked. Give a rank from 0 to " + std::to_string(num_processes - 1) + ".");
  }
}

void check(const ShardOptions& o, int rank) {
  check_rank(o.num_processes, rank);
  if (o.length < 0) {
    throw Error("Sharding of " + std::to_string(o.length) +
                " samples was asked, and a length cannot be negative. Give 0 or more.");
  }
  if (o.batch_size < 1) {
    throw Error("A batch size of " + std::to_string(o.batch_size) +
                " was asked, and a batch holds at least 1 sample. Give batch_size 1 or more.");
  }
  if (o.split_batches && o.batch_size % o.num_processes != 0) {
    throw Error("split_batches was asked with a batch size of " + std::to_string(o.batch_size) + ", which " +
                std::to_string(o.num_processes) +
                " processes cannot share equally. Give a batch size that is a multiple of " +
                std::to_string(o.num_processes) + ", or leave split_batches off.");
  }
  if (o.batch_size > (std::numeric_limits<int64_t>::max() - o.length) / o.num_processes) {
    throw Error("A batch size of " + std::to_string(o.batch_size) + " on " + std::to_string(o.num_processes) +
                " processes was asked, more samples than can be counted. Give a smaller batch size.");
  }
}

int64_t batches_of_rank(const ShardOptions& o, int rank) {
  const int64_t full = o.length / o.batch_size;
  const int64_t all = ceil_div(o.length, o.batch_size);
  if (o.split_batches) {
    if (o.drop_last) return full;
    const int64_t tail = o.length % o.batch_size;
    const bool nothing_left = tail != 0 && tail <= o.batch_size / o.num_processes * rank;
    return all - (!o.even_batches && nothing_left);
  }
  if (o.drop_last) return full / o.num_processes;
  if (o.even_batches) return ceil_div(all, o.num_processes);
  return all / o.num_processes + (rank < all % o.num_processes);
}

}  // namespace

BatchShard::BatchShard(const ShardOptions& o, int rank) {
  check(o, rank);
  length_ = o.length;
  width_ = o.split_batches ? o.batch_size / o.num_processes : o.batch_size;
  first_ = rank * width_;
  stride_ = global_batch_size(o);
  const bool plain = o.num_processes == 1 && !o.complete_on_one_process;
  wrap_ = o.even_batches && !plain ? std::min(o.length, stride_) : 0;
  size_ = batches_of_rank(o, rank);
}

std::vector<int64_t> BatchShard::positions(int64_t batch) const {
  if (batch < 0 || batch >= size_) {
    throw Error("Batch " + std::to_string(batch) + " was asked of a rank that sees " + std::to_string(size_) +
                ". Give a number from 0 to size() - 1.");
  }
  const int64_t begin = first_ + batch * stride_;
  const int64_t end = wrap_ > 0 ? begin + width_ : std::min(begin + width_, length_);
  std::vector<int64_t> positions;
  positions.reserve(end - begin);
  for (int64_t p = begin; p < end; ++p) positions.push_back(p < length_ ? p : (p - length_) % wrap_);
  return positions;
}

LastBatch last_batch(const LastBatchFacts& facts) {
  if (facts.even_batches && facts.workers > 1) return LastBatch::completed;
  if (!facts.one_shape) return LastBatch::left_short;
  return facts.may_pad && !facts.batch_norm_in_training ? LastBatch::padded : LastBatch::completed;
}

int64_t global_batch_size(const ShardOptions& o) {
  return o.split_batches ? o.batch_size : o.batch_size * o.num_processes;
}

int64_t remainder(const ShardOptions& o) {
  check(o, 0);
  return o.drop_last ? -1 : o.length % global_batch_size(o);
}

std::vector<int64_t> varying_batches_of_rank(int64_t num_batches, int num_processes, int rank,
                                             bool even_batches, bool drop_last) {
  check_rank(num_processes, rank);
  if (num_batches < 0) {
    throw Error("Sharding of " + std::to_string(num_batches) +
                " batches was asked, and their number cannot be negative. Give 0 or more.");
  }
  const int64_t whole_turns = num_batches / num_processes;
  const int64_t left = num_batches % num_processes;
  const bool one_more = !drop_last && left > 0 && (even_batches || rank < left);
  std::vector<int64_t> batches;
  batches.reserve(whole_turns + one_more);
  for (int64_t turn = 0; turn < whole_turns + one_more; ++turn) {
    const int64_t batch = turn * num_processes + rank;
    const int64_t period = std::min<int64_t>(num_batches, num_processes);
    batches.push_back(batch < num_batches ? batch : (batch - num_batches) % period);
  }
  return batches;
}

}  // namespace ivme
