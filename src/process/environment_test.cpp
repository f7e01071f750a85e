#include "process/environment.h"

#include <gtest/gtest.h>

#include <map>

#include "ivme/error.h"

namespace ivme {
namespace {

ReadVariable from(std::map<std::string, std::string> variables) {
  return [variables = std::move(variables)](const std::string& name) -> std::optional<std::string> {
    auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

TEST(Environment, nothing_set_means_one_process) {
  auto facts = process_facts(from({}));
  EXPECT_EQ(facts.num_processes, 1);
  EXPECT_EQ(facts.process_index, 0);
}

TEST(Environment, the_variables_of_torchrun_mpi_and_slurm_are_read) {
  for (const auto& [rank, size] :
       std::map<std::string, std::string>{{"RANK", "WORLD_SIZE"},
                                          {"PMI_RANK", "PMI_SIZE"},
                                          {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                          {"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
                                          {"SLURM_PROCID", "SLURM_NTASKS"}}) {
    auto facts = process_facts(from({{rank, "2"}, {size, "3"}}));
    EXPECT_EQ(facts.process_index, 2) << rank;
    EXPECT_EQ(facts.num_processes, 3) << rank;
  }
}

TEST(Environment, local_values_are_kept_apart) {
  auto facts = process_facts(
      from({{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "4"}}));
  EXPECT_EQ(facts.local_process_index, 1);
  EXPECT_EQ(facts.local_num_processes, 4);
}

TEST(Environment, half_a_set_nonsense_and_ranks_outside_are_refused) {
  EXPECT_THROW(process_facts(from({{"RANK", "0"}})), Error);
  EXPECT_THROW(process_facts(from({{"WORLD_SIZE", "2"}})), Error);
  EXPECT_THROW(process_facts(from({{"RANK", "zero"}, {"WORLD_SIZE", "2"}})), Error);
  EXPECT_THROW(process_facts(from({{"RANK", "2"}, {"WORLD_SIZE", "2"}})), Error);
  EXPECT_THROW(process_facts(from({{"RANK", "0"}, {"WORLD_SIZE", "0"}})), Error);
}

TEST(Environment, several_hosts_need_an_address) {
  ProcessFacts facts{0, 4, 0, 2};
  EXPECT_THROW(rendezvous(facts, from({})), Error);
  EXPECT_FALSE(rendezvous(facts, from({{"MASTER_ADDR", "10.0.0.1"}})).one_host);
}

TEST(Environment, only_rank_0_takes_the_listening_socket) {
  auto read = from({{"IVME_MASTER_LISTEN_FD", "7"}});
  EXPECT_EQ(rendezvous({0, 2, 0, 2}, read).listen_descriptor, 7);
  EXPECT_EQ(rendezvous({1, 2, 1, 2}, read).listen_descriptor, std::nullopt);
}

TEST(Environment, torchruns_store_is_used) {
  auto where = rendezvous(
      {0, 2, 0, 2}, from({{"TORCHELASTIC_USE_AGENT_STORE", "True"}, {"TORCHELASTIC_RESTART_COUNT", "3"}}));
  EXPECT_TRUE(where.store_is_served);
  EXPECT_EQ(where.attempt, "3");
}

TEST(Environment, truth_has_many_spellings_and_nonsense_is_refused) {
  EXPECT_TRUE(is_true("X", "True"));
  EXPECT_FALSE(is_true("X", "0"));
  EXPECT_THROW(is_true("X", "maybe"), Error);
}

}  // namespace
}  // namespace ivme
