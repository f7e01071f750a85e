#pragma once
#include <cstdint>
#include <vector>

namespace ivme {

// How an epoch of `length` samples is cut into batches and dealt to the ranks.
struct ShardOptions {
  int64_t length = 0;      // samples in the epoch
  int64_t batch_size = 1;  // as given to the loader: per rank, or of all ranks together with split_batches
  int num_processes = 1;   // ranks
  bool split_batches = false;  // cut each batch into num_processes slices instead of dealing whole batches
  bool even_batches =
      true;                // complete the end with samples from the start: all ranks get equal, full batches
  bool drop_last = false;  // leave out what does not fill a batch on every rank
  // One process: a prepared loader keeps plain batches, the last one short. Accelerate's BatchSamplerShard
  // used by itself completes that batch too under even_batches; true asks for this.
  bool complete_on_one_process = false;
};

// Which positions of the epoch's index order one rank sees: the rule of Accelerate 1.15's BatchSamplerShard
// in closed form. Any batch can be asked for at any time, at the cost of that batch alone. Immutable, any
// thread.
//
// With n = length, B = batch_size, P = num_processes and m = ceil(n / B) batches:
//   whole batches: batch k of rank r begins at (k P + r) B, B long
//   split_batches: batch k of rank r begins at k B + r B/P, B/P long
//   even_batches:  a position p >= n becomes (p - n) mod min(n, P B), or mod min(n, B) with split_batches
//   else:          batches are clipped to n, and a rank for which nothing is left has a batch less
//   drop_last:     only groups of P full batches (or full batches, with split_batches)
class BatchShard {
 public:
  // Throws ivme::Error on length < 0, batch_size < 1, num_processes < 1, a rank outside [0, num_processes),
  // and on split_batches with a batch size that num_processes does not divide.
  BatchShard(const ShardOptions& options, int rank);

  // Number of batches this rank sees; exact in every mode (Accelerate's own len() is not with split_batches).
  int64_t size() const { return size_; }

  // Positions in the epoch's order of one batch, 0 <= batch < size(); throws ivme::Error outside.
  std::vector<int64_t> positions(int64_t batch) const;

 private:
  int64_t length_;
  int64_t first_;   // where batch 0 begins
  int64_t stride_;  // from one batch of this rank to its next
  int64_t width_;   // samples in a full batch
  int64_t wrap_;    // period of the completing samples; 0: clip
  int64_t size_;
};

// What becomes of an epoch's last batch when samples are too few for it.
enum class LastBatch {
  left_short,
  completed,  // with samples from the epoch's start
  padded,     // on the device, to the rows of a full batch
};
struct LastBatchFacts {
  bool one_shape = false;  // each shape costs a compilation: XLA
  int workers = 1;
  bool even_batches = true;
  bool may_pad = true;
  bool batch_norm_in_training = false;  // its statistics would count padding
};
// Several workers complete it under even_batches, as Accelerate does. One worker, and uneven ones, leave it
// short; where that would be another program they pad it, or complete it when padding would be seen.
LastBatch last_batch(const LastBatchFacts& facts);

// Samples of one step over all ranks: batch_size with split_batches, else batch_size * num_processes.
int64_t global_batch_size(const ShardOptions& options);

// How many samples of the epoch's last step are real: length mod global batch (0: all); -1 under drop_last.
int64_t remainder(const ShardOptions& options);

// The same for a batch sampler whose batches vary in size: the numbers of the batches that one rank sees,
// dealt in turn. even_batches gives a rank that would go short one of the first batches again, whole;
// drop_last leaves out an incomplete last turn. Throws ivme::Error on num_batches < 0, num_processes < 1 or a
// rank outside.
std::vector<int64_t> varying_batches_of_rank(int64_t num_batches, int num_processes, int rank,
                                             bool even_batches, bool drop_last);

}  // namespace ivme
