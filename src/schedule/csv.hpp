#pragma once

#include <string>
#include <string_view>

#include "schedule/schedule.hpp"

namespace forge {

// A schedule as comma-separated text, one record per line ('#' starts a comment line):
//   schedule,<name>,<ranks>,<chunks per rank>,<microbatches>,compute|lowered       first
//   stage,<stage>,<rank>,<chunk>                                                   one per stage
//   action,<rank>,<operation>,<chunk>,<microbatch>[,<peer>]                        in the order of the rank's list
// Operations have the names of name_of(Op).
std::string write_schedule_csv(const Schedule& schedule);

// Reads that text, which is not trusted, and validates the schedule. `source` is the file's name. Throws BadInput with
// "source:line: ", the rule, and the legal values; at most 2^20 (stage, microbatch) pairs.
Schedule read_schedule_csv(std::string_view text, const std::string& source);

}  // namespace forge
