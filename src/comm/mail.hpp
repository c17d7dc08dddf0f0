#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/to_size.hpp"

namespace forge {

// Short messages between ranks beside the training, for watchdogs. Nothing here waits: a stopped rank's letters never
// arrive, and letters to it stay. Used by one thread of a rank at a time.
class Mail {
 public:
  struct Letter {
    int from;
    std::string text;
  };
  Mail() = default;
  virtual ~Mail() = default;
  Mail(const Mail&) = delete;
  Mail& operator=(const Mail&) = delete;

  // Letters between two ranks arrive in their order, each when both have called one of these often enough.
  virtual void send(int to, const std::string& text) = 0;
  virtual std::optional<Letter> receive() = 0;
};

// Between ranks that are threads of one process. Must live longer than their mails.
class ThreadPost {
 public:
  explicit ThreadPost(int ranks) : letters_(to_size(ranks)) {}
  std::unique_ptr<Mail> mail_of(int rank);

 private:
  class Box;
  std::mutex mutex_;
  std::vector<std::deque<Mail::Letter>> letters_;  // by the rank that they are for
};

}  // namespace forge
