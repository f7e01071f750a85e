#pragma once

namespace ivme::cli {

// One per sub-command, each in the file of its name. argv[0] is the sub-command. Returns the exit code;
// throws launch::UsageError for wrong usage and ivme::Error when the work failed.
int launch(int argc, char** argv);
int shards(int argc, char** argv);

}  // namespace ivme::cli
