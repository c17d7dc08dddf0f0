#include "nccl_work.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "fail.hpp"
#include "nccl_sum.hpp"

namespace vgpu {

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    default:
      return 8;
  }
}

namespace {

// One operation as it proceeds. can(): advance() would get further; advance(): true when it is done.
class Progress {
 public:
  virtual ~Progress() = default;
  virtual bool can() = 0;
  virtual bool advance() = 0;
  virtual void add_missing(std::vector<BoardMember>& members) = 0;
  virtual std::string text() const = 0;
};

// All show what they call; then each reads what it needs of the others' memory and may write into it; when all have,
// the operation is over.
class CollectiveProgress final : public Progress {
 public:
  CollectiveProgress(Comm& comm, const Operation& o, std::uint64_t number)
      : comm_(comm), call_(o.call), number_(number) {}

  bool can() override {
    if (!shown_) return all(&RankSlot::finished, number_ - 1);
    return all(read_ ? &RankSlot::finished : &RankSlot::shown, number_);
  }
  bool advance() override {
    RankSlot& own = comm_.slot(comm_.rank());
    if (!shown_) {
      own.call = call_;
      own.shown = number_;
      shown_ = true;
    } else if (!read_) {
      check_calls();
      run();
      own.finished = number_;
      read_ = true;
    } else {
      if (!result_.empty()) std::memcpy(memory(comm_.rank()) + call_.out, result_.data(), result_.size());
      return true;
    }
    comm_.ring_all();
    return false;
  }
  void add_missing(std::vector<BoardMember>& members) override {
    for (int r = 0; r < comm_.size(); ++r)
      if ((read_ ? comm_.slot(r).finished : comm_.slot(r).shown) < number_) members.push_back(comm_.member(r));
  }
  std::string text() const override { return call_.text(); }

 private:
  bool all(std::atomic<std::uint64_t> RankSlot::*counter, std::uint64_t number) const {
    for (int r = 0; r < comm_.size(); ++r)
      if (comm_.slot(r).*counter < number) return false;
    return true;
  }
  char* memory(int rank) const { return comm_.peer_memory(rank, 0); }
  const Call& call_of(int rank) const { return comm_.slot(rank).call; }

  void check_calls() const {
    for (int r = 0; r < comm_.size(); ++r)
      if (!call_of(r).matches(call_))
        fail("NCCL: the ranks of a communicator call different operations: rank " + std::to_string(comm_.rank()) + " " +
             call_.text() + ", rank " + std::to_string(r) + " " + call_of(r).text());
  }

  std::vector<const char*> inputs() const {
    std::vector<const char*> list;
    for (int r = 0; r < comm_.size(); ++r) list.push_back(memory(r) + call_of(r).in);
    return list;
  }

  void run() {
    const auto type = static_cast<ncclDataType_t>(call_.type);
    const auto ranks = static_cast<std::size_t>(comm_.size()), own = static_cast<std::size_t>(comm_.rank());
    const std::size_t size = size_of(type), count = call_.count;
    switch (call_.kind) {
      case Collective::all_reduce: {
        // A part a rank: nobody else reads this part of any input.
        const std::size_t begin = count * own / ranks, part = count * (own + 1) / ranks - begin;
        std::vector<char> sum(part * size);
        reduce_ranks(static_cast<ncclRedOp_t>(call_.operation), type, inputs(), own, begin, part, sum.data());
        for (int r = 0; r < comm_.size(); ++r)
          std::memcpy(memory(r) + call_of(r).out + begin * size, sum.data(), sum.size());
        return;
      }
      case Collective::reduce_scatter:
        result_.resize(count * size);
        return reduce_ranks(static_cast<ncclRedOp_t>(call_.operation), type, inputs(), own, own * count, count,
                            result_.data());
      case Collective::all_gather:
        for (int r = 0; r < comm_.size(); ++r) {
          char* to = memory(comm_.rank()) + call_.out + static_cast<std::size_t>(r) * count * size;
          const char* from = memory(r) + call_of(r).in;
          if (to != from) std::memmove(to, from, count * size);
        }
        return;
      case Collective::broadcast:
        char* to = memory(comm_.rank()) + call_.out;
        const char* from = memory(call_.root) + call_of(call_.root).in;
        if (to != from) std::memmove(to, from, count * size);
    }
  }

  Comm& comm_;
  Call call_;
  std::uint64_t number_;
  bool shown_ = false, read_ = false;
  std::vector<char> result_;  // written when nobody reads any more
};

// A send ends when the receiver has taken the message, as with NCCL's rendezvous.
class SendProgress final : public Progress {
 public:
  SendProgress(Comm& comm, const Operation& o)
      : comm_(comm), channel_(comm.segment().channel(comm.rank(), o.peer)), operation_(o) {}

  bool can() override { return channel_.shown == channel_.taken; }
  bool advance() override {
    if (shown_) return true;
    channel_.offset = comm_.device().memory().offset_of(operation_.in);
    channel_.bytes = operation_.bytes;
    channel_.shown.fetch_add(1);
    shown_ = true;
    comm_.ring(operation_.peer);
    return false;
  }
  void add_missing(std::vector<BoardMember>& members) override { members.push_back(comm_.member(operation_.peer)); }
  std::string text() const override {
    return "ncclSend of " + std::to_string(operation_.bytes) + " bytes to rank " + std::to_string(operation_.peer);
  }

 private:
  Comm& comm_;
  Channel& channel_;
  Operation operation_;
  bool shown_ = false;
};

class ReceiveProgress final : public Progress {
 public:
  ReceiveProgress(Comm& comm, const Operation& o)
      : comm_(comm), channel_(comm.segment().channel(o.peer, comm.rank())), operation_(o) {}

  bool can() override { return channel_.shown != channel_.taken; }
  bool advance() override {
    if (channel_.bytes != operation_.bytes)
      fail("NCCL: rank " + std::to_string(operation_.peer) + " sends " + std::to_string(channel_.bytes) +
           " bytes, rank " + std::to_string(comm_.rank()) + " receives " + std::to_string(operation_.bytes));
    if (operation_.bytes > 0)
      std::memmove(comm_.device().memory().inner(operation_.out), comm_.peer_memory(operation_.peer, channel_.offset),
                   operation_.bytes);
    channel_.taken.fetch_add(1);
    comm_.ring(operation_.peer);
    return true;
  }
  void add_missing(std::vector<BoardMember>& members) override { members.push_back(comm_.member(operation_.peer)); }
  std::string text() const override {
    return "ncclRecv of " + std::to_string(operation_.bytes) + " bytes from rank " + std::to_string(operation_.peer);
  }

 private:
  Comm& comm_;
  Channel& channel_;
  Operation operation_;
};

class NcclWork final : public Work {
 public:
  NcclWork(std::shared_ptr<Comm> comm, std::vector<Operation> operations) : comm_(std::move(comm)) {
    for (const Operation& o : operations) {
      parts_.push_back({o, nullptr});
      if (o.kind == Operation::Kind::collective)
        parts_.back().progress = std::make_unique<CollectiveProgress>(*comm_, o, comm_->next_collective());
      else if (o.kind == Operation::Kind::send)
        parts_.back().progress = std::make_unique<SendProgress>(*comm_, o);
      else
        parts_.back().progress = std::make_unique<ReceiveProgress>(*comm_, o);
    }
    comm_->launched();
    number_ = comm_->device().nccl().launched(this);
  }
  ~NcclWork() override {
    comm_->device().nccl().ended(this);
    comm_->completed();
  }

  bool ready(Device& device) override {
    if (comm_->revoked()) return true;
    if (!device.nccl().turn(this)) return false;
    if (failed_) return false;
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (can(i)) return true;
    std::vector<BoardMember> missing;
    for (const Part& part : parts_)
      if (part.progress) part.progress->add_missing(missing);
    std::erase(missing, comm_->member(comm_->rank()));
    device.nccl().waits_for(comm_->segment().number(), text(), missing);
    return false;
  }
  bool step(Device& device) override {
    if (comm_->revoked()) return true;
    device.nccl().waits_for_nobody();
    if (device.nccl().fault() == number_) {  // on demand: it fails, and those that wait for this rank wait on
      failed_ = true;
      comm_->set_error(ncclSystemError);
      return false;
    }
    bool done = true;
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      if (can(i) && parts_[i].progress->advance()) parts_[i].progress.reset();
      done = done && !parts_[i].progress;
    }
    return done;
  }
  bool meets_others() const override { return true; }
  std::string text() const override {
    std::string text;
    for (const Part& part : parts_)
      if (part.progress && text.size() < 80) text += (text.empty() ? "" : ", ") + part.progress->text();
    return text + " (rank " + std::to_string(comm_->rank()) + " of " + std::to_string(comm_->size()) + ")";
  }

 private:
  struct Part {
    Operation operation;
    std::unique_ptr<Progress> progress;  // null: done
  };
  // Messages between two ranks match in the order given; collectives run one after another.
  bool can(std::size_t i) const {
    const Part& part = parts_[i];
    if (!part.progress) return false;
    for (std::size_t j = 0; j < i; ++j) {
      const Operation &a = parts_[j].operation, &b = part.operation;
      if (parts_[j].progress && a.kind == b.kind && (a.kind == Operation::Kind::collective || a.peer == b.peer))
        return false;
    }
    return part.progress->can();
  }

  std::shared_ptr<Comm> comm_;
  std::vector<Part> parts_;
  std::int64_t number_ = 0;
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<Work> nccl_work(std::shared_ptr<Comm> comm, std::vector<Operation> operations) {
  return std::make_unique<NcclWork>(std::move(comm), std::move(operations));
}

}  // namespace vgpu
