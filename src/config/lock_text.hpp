#pragma once

#include <cstdint>
#include <string>

namespace forge {

// 16 hexadecimal digits, another text for every job: part of the names of what it has not finished.
std::string draw_nonce();
bool is_nonce(const std::string& text);

// The text of a lock's file: a line for people, then what other starts compare.
struct LockText {
  std::string text;          // all of it; "": there is none
  std::string who;           // "n1, process 1234, since 2026-05-06 07:08:09 UTC, Slurm job 77"
  std::string nonce;         // "": it is no text of forge's
  std::string boot;          // of the node's kernel
  std::string job;           // of Slurm, "-": none
  std::int64_t restart = 0;  // which start of that job
};

// Of a file that may hold anything, or not be there.
LockText read_lock_text(const std::string& file);
// "n1, process 1234, since …": since now.
std::string this_process();
// The text of this process, which is `who`; `beats`: a number that changes.
std::string lock_text(const std::string& who, const std::string& nonce, std::uint64_t beats);
// Whether its process runs, or ran, on the node of this one.
bool is_of_this_node(const LockText& holder);
// Whether it is of an earlier start of this one's Slurm job.
bool is_earlier_start(const LockText& holder);

}  // namespace forge
