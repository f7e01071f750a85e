#include "process/group.h"

#include <c10/util/Logging.h>

#include <exception>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <typeinfo>
#include <utility>

#include "ivme/error.h"
#include "process/backend.h"
#include "support/nearest.h"

namespace ivme {
namespace {

using namespace std::chrono_literals;

std::vector<uint8_t> bytes(const std::string& text) { return {text.begin(), text.end()}; }

// c10::Error carries a stack trace behind its first line.
// Without the source file that Gloo puts before its messages, and without its farewell.
std::string first_line(const std::exception& failure) {
  std::string text = failure.what();
  text = text.substr(0, text.find('\n'));
  if (text.starts_with('[') && text.find("] ") != std::string::npos) text = text.substr(text.find("] ") + 2);
  return text.substr(0, text.find(". GLHF!"));
}

std::string seconds(std::chrono::milliseconds time) {
  std::string text = std::to_string(static_cast<double>(time.count()) / 1000);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + " s";
}

class StoreBoard : public record::Board {
 public:
  explicit StoreBoard(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}
  void set(const std::string& key, const std::string& value) override { store_->set(key, bytes(value)); }
  std::optional<std::string> take(const std::string& key) override {
    if (!store_->check({key})) return std::nullopt;
    auto value = store_->get(key);
    store_->deleteKey(key);
    return std::string(value.begin(), value.end());
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
};

// What a broken collective throws: Gloo's own exceptions, or c10d's; anything else is the program's.
bool of_the_group(const std::exception& failure) {
  return dynamic_cast<const c10::DistError*>(&failure) != nullptr ||
         dynamic_cast<const RankLost*>(&failure) != nullptr ||
         std::string(typeid(failure).name()).find("gloo") != std::string::npos;
}

// While it lives c10d does not print stack traces of failures that become an Error.
class Silence {
 public:
  Silence() : before_(std::exchange(FLAGS_caffe2_log_level, 3)) {}
  ~Silence() { FLAGS_caffe2_log_level = before_; }

 private:
  int before_;
};

c10::intrusive_ptr<c10d::Store> connect(const ProcessFacts& facts, const Rendezvous& where,
                                        std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(where.port);
  options.isServer = facts.process_index == 0 && !where.store_is_served;
  options.waitWorkers = !where.store_is_served;
  options.numWorkers = facts.num_processes;
  options.timeout = timeout;
  if (options.isServer) options.masterListenFd = where.listen_descriptor;
  Silence silence;
  return c10::make_intrusive<c10d::TCPStore>(where.address, options);
}

}  // namespace

std::string enumerate(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size(); ++i)
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  return text;
}

std::shared_ptr<Group> Group::join(const ProcessFacts& facts, c10::DeviceType device,
                                   std::chrono::milliseconds timeout) {
  static std::mutex mutex;
  static std::weak_ptr<Group> held;
  std::lock_guard lock(mutex);
  auto group = held.lock();
  if (!group) {
    group.reset(new Group(facts, device, timeout));
    held = group;
  }
  return group;
}

Group::Group(const ProcessFacts& facts, c10::DeviceType device, std::chrono::milliseconds timeout)
    : facts_(facts), timeout_(timeout) {
  Rendezvous where = rendezvous(facts);
  // A process that leaves its group and joins again (two Accelerators, one after the other) must not meet old
  // keys.
  static int joined = 0;
  try {
    static c10::intrusive_ptr<c10d::Store>
        base;  // one server per process: the port stays taken until it ends
    if (!base) base = connect(facts, where, timeout);
    store_ = c10::make_intrusive<c10d::PrefixStore>("ivme/" + where.attempt + "/" + std::to_string(joined++),
                                                    base);
    auto backend_store = c10::make_intrusive<c10d::PrefixStore>("group", store_);
    group_ = c10::make_intrusive<c10d::ProcessGroup>(backend_store, rank(), size());
    add_gloo_backend(group_, c10::make_intrusive<c10d::PrefixStore>("cpu", backend_store), timeout,
                     where.one_host);
    if (device == c10::DeviceType::CUDA)
      add_nccl_backend(group_, c10::make_intrusive<c10d::PrefixStore>("cuda", backend_store), timeout);
    group_->setGroupName("ivme");
    // This rank is connected; another may still need it for that, so nobody goes on (or ends) before all are.
    store_->set("joined/" + std::to_string(rank()), bytes("1"));
    if (std::string missing = missing_ranks("joined/", timeout); !missing.empty())
      throw Error("Rank " + std::to_string(rank()) + " joined " + std::to_string(size()) +
                  " processes, but rank " + missing + " did not within " + seconds(timeout) +
                  ". Look at what it did last.");
    if (where.one_host && device == c10::DeviceType::CPU) share_memory();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& failure) {
    throw Error("Rank " + std::to_string(rank()) + " wanted to join " + std::to_string(size()) +
                " processes at " + where.address + ":" + std::to_string(where.port) +
                ", but they did not all come together within " + seconds(timeout) + " (" +
                first_line(failure) + "). Start all ranks, for example with `ivme launch --num_processes " +
                std::to_string(size()) + "`.");
  }
}

void Group::share_memory() {
  std::string choice = read_environment("IVME_ALL_REDUCE").value_or("shared_memory");
  const std::vector<std::string> choices = {"shared_memory", "gloo"};
  if (choice != choices[0] && choice != choices[1])
    throw Error(unknown_word("IVME_ALL_REDUCE", choice, choices) + ".");
  std::shared_ptr<SharedAverage> memory;
  if (choice == "shared_memory" && rank() == 0) memory = SharedAverage::create(size(), timeout_);
  if (rank() == 0) store_->set("memory", bytes(memory ? memory->address() : "none"));
  auto address = store_->get("memory");
  if (choice == "shared_memory" && rank() != 0)
    memory = SharedAverage::attach(std::string(address.begin(), address.end()), rank(), size(), timeout_);
  store_->set("mapped/" + std::to_string(rank()), bytes(memory ? "yes" : "no"));
  for (int other = 0; other < size(); ++other)
    if (store_->get("mapped/" + std::to_string(other)) != bytes("yes")) return;  // all, or none
  memory_ = std::move(memory);
}

Group::~Group() {
  if (!failed_ && std::uncaught_exceptions() == 0) say_goodbye();
}

void Group::say_goodbye() {
  try {
    store_->set("ended/" + std::to_string(rank()), bytes("1"));
    if (rank() == 0) missing_ranks("ended/", 5s);
  } catch (const std::exception&) {  // rank 0 was faster
  }
}

std::string Group::missing_ranks(const std::string& prefix, std::chrono::milliseconds wait) {
  auto deadline = std::chrono::steady_clock::now() + wait;
  std::vector<std::string> keys;
  for (int other = 0; other < size(); ++other) keys.push_back(prefix + std::to_string(other));
  while (!store_->check(keys)) {
    if (std::chrono::steady_clock::now() >= deadline) {
      std::vector<int> missing;
      for (int other = 0; other < size(); ++other)
        if (!store_->check({keys[other]})) missing.push_back(other);
      return enumerate(missing);
    }
    std::this_thread::sleep_for(1ms);
  }
  return "";
}

void Group::fail(const std::string& what, const std::string& reason) {
  failed_ = true;
  std::string who;
  try {
    // Every rank that was in the collective says so; who does not is the one that is missing.
    std::string key = "failed/" + what + "/";
    store_->set(key + std::to_string(rank()), bytes("1"));
    std::string missing =
        missing_ranks(key, rank() == 0 ? 2s : 1s);  // rank 0 serves the store: it leaves last
    who = missing.empty() ? "all ranks took part" : "missing: rank " + missing;
  } catch (const std::exception&) {
    who = "missing: rank 0, which has ended";
  }
  throw Error(
      "Rank " + std::to_string(rank()) + " waited for the other ranks in " + what + ", which failed (" + who +
      "; " + reason +
      "). Every rank must make the same calls in the same order: look at what the missing rank did last.");
}

void Group::run(const std::string& what, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& failure) {  // Gloo's are not c10::Errors
    if (!of_the_group(failure)) throw;
    fail(what, first_line(failure));
  }
}

void Group::barrier(const std::string& what) {
  std::string prefix = "barrier/" + std::to_string(barriers_) + "/";
  std::string missing;
  try {
    store_->set(prefix + std::to_string(rank()), bytes(what));
    missing = missing_ranks(prefix, timeout_);
    // Whoever is here has left the barrier before the last one, so nobody reads its keys any more.
    if (barriers_ >= 2)
      store_->deleteKey("barrier/" + std::to_string(barriers_ - 2) + "/" + std::to_string(rank()));
    ++barriers_;
  } catch (const std::exception& failure) {
    failed_ = true;
    throw Error("Rank " + std::to_string(rank()) + " waited for everyone in " + what +
                ", but rank 0 has ended (" + first_line(failure) +
                "). Every rank must reach the same barriers.");
  }
  if (missing.empty()) return;
  failed_ = true;
  throw Error("Rank " + std::to_string(rank()) + " waited " + seconds(timeout_) + " for everyone in " + what +
              ", but rank " + missing +
              " did not come. Call it on every rank, not inside `if (is_main_process())`.");
}

std::shared_ptr<record::Board> Group::board() { return std::make_shared<StoreBoard>(store_); }

}  // namespace ivme
