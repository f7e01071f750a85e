#include "record/record_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <string>

#include "ivme/error.h"
#include "record/scratch_file.h"

namespace ivme::record {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(RecordFile, truncates_what_was_there_and_writes_whole_blocks) {
  ScratchFile scratch;
  RecordFile(scratch.path()).append("lost, because it was never flushed\n");
  RecordFile old(scratch.path());
  old.append("old\n");
  old.flush();
  EXPECT_EQ(scratch.text(), "old\n");
  RecordFile file(scratch.path());
  EXPECT_EQ(scratch.text(), "");
  file.append("a\n");
  EXPECT_EQ(scratch.text(), "");
  file.append("b\n");
  file.flush();
  file.flush();
  EXPECT_EQ(scratch.text(), "a\nb\n");
}

TEST(RecordFile, a_folder_that_is_not_there_is_named_with_what_to_do) {
  EXPECT_THAT([] { RecordFile file("/no/such/folder/run.jsonl"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("/no/such/folder/run.jsonl"),
                                         HasSubstr("No such file or directory"), HasSubstr("IVME_RECORD"))));
  EXPECT_THROW(RecordFile("/"), Error);
}

TEST(RecordFile, a_full_disk_is_an_error_once_and_leaves_whole_lines) {
  ScratchFile scratch;
  RecordFile file(scratch.path());
  file.append("first\n");
  file.flush();
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{15, before.rlim_max};
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  file.append("second\nthird, which is too long\n");
  EXPECT_THAT([&] { file.flush(); }, ThrowsMessage<Error>(HasSubstr(scratch.path())));
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(scratch.text(), "first\nsecond\n");
  file.append("fourth\n");
  file.flush();
  EXPECT_EQ(scratch.text(), "first\nsecond\n");
}

}  // namespace
}  // namespace ivme::record
