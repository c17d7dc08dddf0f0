#include "comm/mail.hpp"

#include <utility>

namespace forge {

class ThreadPost::Box final : public Mail {
 public:
  Box(ThreadPost& post, int rank) : post_(post), rank_(rank) {}

  void send(int to, const std::string& text) override {
    const std::lock_guard lock(post_.mutex_);
    post_.letters_.at(to_size(to)).push_back({rank_, text});
  }
  std::optional<Letter> receive() override {
    const std::lock_guard lock(post_.mutex_);
    auto& letters = post_.letters_.at(to_size(rank_));
    if (letters.empty()) return {};
    Letter letter = std::move(letters.front());
    letters.pop_front();
    return letter;
  }

 private:
  ThreadPost& post_;
  int rank_;
};

std::unique_ptr<Mail> ThreadPost::mail_of(int rank) {
  return std::make_unique<Box>(*this, rank);
}

}  // namespace forge
