#include "comm/mpi_mail.hpp"

#include <list>
#include <utility>

#include "comm/mpi_check.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

class MpiMail final : public Mail {
 public:
  MpiMail() {
    mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
    mpi_check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  // Where a letter was never taken its memory stays: MPI may still look at it.
  ~MpiMail() override {
    tidy();
    if (!sent_.empty() || receives_) static_cast<void>(new std::pair(std::move(sent_), std::move(text_)));
    MPI_Comm_free(&comm_);
  }

  // What fails with a rank that is gone is as if nothing had been sent.
  void send(int to, const std::string& text) override {
    tidy();
    Sent& sent = sent_.emplace_back(Sent{text, MPI_REQUEST_NULL});
    MPI_Isend(sent.text.data(), static_cast<int>(sent.text.size()), MPI_CHAR, to, tag, comm_, &sent.request);
  }

  std::optional<Letter> receive() override {
    tidy();
    int there = 0;
    if (!receives_) {
      MPI_Message message = MPI_MESSAGE_NULL;
      MPI_Status status;
      int length = 0;
      if (MPI_Improbe(MPI_ANY_SOURCE, tag, comm_, &there, &message, &status) != MPI_SUCCESS || !there) return {};
      MPI_Get_count(&status, MPI_CHAR, &length);
      from_ = status.MPI_SOURCE;
      text_.resize(to_size(length));
      if (MPI_Imrecv(text_.data(), length, MPI_CHAR, &message, &request_) != MPI_SUCCESS) return {};
      receives_ = true;
    }
    if (MPI_Test(&request_, &there, MPI_STATUS_IGNORE) != MPI_SUCCESS || !there) return {};
    receives_ = false;
    return Letter{from_, std::exchange(text_, {})};
  }

 private:
  static constexpr int tag = 0;
  struct Sent {
    std::string text;
    MPI_Request request;
  };
  void tidy() {
    for (auto sent = sent_.begin(); sent != sent_.end();) {
      int done = 0;
      MPI_Test(&sent->request, &done, MPI_STATUS_IGNORE);
      sent = done ? sent_.erase(sent) : std::next(sent);
    }
  }

  MPI_Comm comm_ = MPI_COMM_NULL;
  std::list<Sent> sent_;
  // The letter that is on its way in.
  bool receives_ = false;
  int from_ = 0;
  std::string text_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace

std::unique_ptr<Mail> mpi_mail() {
  return std::make_unique<MpiMail>();
}

}  // namespace forge
