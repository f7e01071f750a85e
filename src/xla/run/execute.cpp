#include "xla/run/execute.h"

#include <algorithm>
#include <string>

#include "ivme/error.h"
#include "xla/compile/pjrt_call.h"

namespace ivme::xla {
namespace {

using Buffers = std::vector<std::shared_ptr<Buffer>>;

[[noreturn]] void refuse(size_t index, const Shape& wanted, const std::string& what) {
  throw Error("A program was to run whose argument " + std::to_string(index) + " is " + to_string(wanted) +
              ", but it was given " + what + ".");
}

void check_argument(const Client& client, const Buffer* argument, const Shape& wanted, size_t index) {
  if (argument == nullptr) refuse(index, wanted, "no array. Upload one");
  if (argument->is_deleted())
    refuse(index, wanted,
           "an array that an earlier program consumed. Pass the result that took its memory, or do not "
           "donate it there");
  if (&argument->client() != &client)
    refuse(index, wanted, "an array of another client. Upload it to this one");
  if (argument->device() != 0)
    refuse(index, wanted,
           "an array on device " + std::to_string(argument->device()) + ". Upload it to device 0");
  if (argument->shape() != wanted)
    refuse(index, wanted, "an array " + to_string(argument->shape()) + ". Compile a program for that shape");
}

void check(const Executable& executable, const Buffers& arguments, const std::vector<bool>& donated) {
  const std::vector<Shape>& wanted = executable.signature().arguments;
  if (executable.num_partitions() != 1)
    throw Error("A program for " + std::to_string(executable.num_partitions()) +
                " devices was to run on one. Compile it for one.");
  if (arguments.size() != wanted.size() || (!donated.empty() && donated.size() != wanted.size()))
    throw Error("A program of " + std::to_string(wanted.size()) + " arguments was to run with " +
                std::to_string(arguments.size()) + ", and " + std::to_string(donated.size()) +
                " marks of donation. Pass one of each for every argument, or no marks.");
  for (size_t i = 0; i < arguments.size(); ++i)
    check_argument(executable.client(), arguments[i].get(), wanted[i], i);
}

// The arguments that the program may consume, in increasing order.
std::vector<size_t> consumable(const Signature& signature, const Buffers& arguments,
                               const std::vector<bool>& donated) {
  std::vector<size_t> found;
  for (size_t i = 0; i < donated.size(); ++i)
    if (donated[i] && signature.aliases[i] >= 0) found.push_back(i);
  if (found.empty()) return found;
  std::vector<const Buffer*> sorted(arguments.size());
  std::transform(arguments.begin(), arguments.end(), sorted.begin(),
                 [](const auto& each) { return each.get(); });
  std::sort(sorted.begin(), sorted.end());
  std::erase_if(found, [&](size_t i) {
    const auto [begin, end] = std::equal_range(sorted.begin(), sorted.end(), arguments[i].get());
    return end - begin > 1;
  });
  return found;
}

std::vector<int64_t> others(size_t count, const std::vector<size_t>& consumed) {
  std::vector<int64_t> found;
  auto next = consumed.begin();
  for (size_t i = 0; i < count; ++i) {
    if (next != consumed.end() && *next == i)
      ++next;
    else
      found.push_back(static_cast<int64_t>(i));
  }
  return found;
}

std::optional<Failure> start(const Executable& executable, const Buffers& arguments,
                             const std::vector<int64_t>& kept, std::vector<PJRT_Buffer*>& results,
                             PJRT_Event*& ended) {
  std::vector<PJRT_Buffer*> handles(arguments.size());
  std::transform(arguments.begin(), arguments.end(), handles.begin(),
                 [](const auto& each) { return each->handle(); });
  auto options = sized<PJRT_ExecuteOptions>();
  options.non_donatable_input_indices = kept.data();
  options.num_non_donatable_input_indices = kept.size();
  PJRT_Buffer* const* argument_list = handles.data();
  PJRT_Buffer** result_list = results.data();
  auto args = sized<PJRT_LoadedExecutable_Execute_Args>();
  args.executable = executable.handle();
  args.options = &options;
  args.argument_lists = &argument_list;
  args.num_devices = 1;
  args.num_args = handles.size();
  args.output_lists = &result_list;
  args.device_complete_events = &ended;
  return try_call(executable.client().api(), &PJRT_Api::PJRT_LoadedExecutable_Execute, args,
                  "Running the program");
}

}  // namespace

Buffers execute(const Executable& executable, const Buffers& arguments, const std::vector<bool>& donated) {
  check(executable, arguments, donated);
  const Signature& signature = executable.signature();
  const std::vector<size_t> consumed = consumable(signature, arguments, donated);
  std::vector<PJRT_Buffer*> handles(signature.results.size());
  PJRT_Event* ended = nullptr;
  const auto failure = start(executable, arguments, others(arguments.size(), consumed), handles, ended);
  Buffers results;
  if (!failure) {
    results.reserve(handles.size());
    const auto client = executable.client().shared_from_this();
    for (size_t i = 0; i < handles.size(); ++i)
      results.push_back(std::make_shared<Buffer>(client, handles[i], signature.results[i], 0));
  }
  const auto run = executable.client().keep_running(ended);
  for (const size_t i : consumed) arguments[i]->note_donation(run);
  if (failure) throw_failure(executable.client().api(), *failure, "Running the program");
  return results;
}

}  // namespace ivme::xla
