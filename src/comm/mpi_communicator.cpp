#include "comm/mpi_communicator.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/add.hpp"
#include "comm/mpi_check.hpp"
#include "comm/mpi_host.hpp"
#include "config/node_ranks.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

constexpr int tag_exchange = 0, tag_reduce = 1, tag_gather = 2;
constexpr int patient_polls = 64;
constexpr auto nap = std::chrono::microseconds(20);

MPI_Datatype mpi_type(DType type) {
  switch (type) {
    case DType::f64:
      return MPI_DOUBLE;
    case DType::f32:
      return MPI_FLOAT;
    case DType::bf16:
    case DType::f16:
    case DType::u16:
      return MPI_UINT16_T;
    case DType::u8:
      return MPI_UINT8_T;
    case DType::u32:
      return MPI_UINT32_T;
    case DType::i32:
      return MPI_INT32_T;
    case DType::i64:
      return MPI_INT64_T;
  }
  throw Error("no MPI type");
}

void add_bf16(void* in, void* inout, int* count, MPI_Datatype*) {
  add_on_host(static_cast<std::byte*>(inout), static_cast<const std::byte*>(in), *count, DType::bf16);
}

MPI_Comm dup_of(MPI_Comm parent) {
  MPI_Comm comm = MPI_COMM_NULL;
  mpi_check(MPI_Comm_dup(parent, &comm), "MPI_Comm_dup");
  mpi_check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return comm;
}

bool mpi_has_ended() {
  int ended = 0;
  MPI_Finalized(&ended);
  return ended != 0;
}

}  // namespace

// An MPI communicator on its way into one of ours.
struct MpiCommunicator::Part {
  MPI_Comm comm;
};

struct MpiCommunicator::Implementation {
  MPI_Comm device, host;
  MPI_Op bf16_sum = MPI_OP_NULL;
  int rank = 0, size = 1;
  bool oversubscribed;
  std::int64_t message_bytes;
  // Kept from call to call, so that a step asks for no memory; by the stream that the communicator serves.
  std::vector<std::byte> scratch;  // two messages, made at the first long sum
  std::vector<MPI_Request> requests;
  // Lists of transfers on their way to a background stream, and such as came back from there.
  std::mutex lists_mutex;
  std::vector<std::vector<Transfer>> spare_lists;

  // Takes its own duplicates of `parent`.
  Implementation(MPI_Comm parent, bool oversubscribed_, std::int64_t message_bytes_)
      : device(dup_of(parent)), host(dup_of(parent)), oversubscribed(oversubscribed_), message_bytes(message_bytes_) {
    mpi_check(MPI_Op_create(add_bf16, 1, &bf16_sum), "MPI_Op_create");
    mpi_check(MPI_Comm_rank(device, &rank), "MPI_Comm_rank");
    mpi_check(MPI_Comm_size(device, &size), "MPI_Comm_size");
  }
  ~Implementation() {
    if (mpi_has_ended()) return;
    MPI_Op_free(&bf16_sum);
    MPI_Comm_free(&host);
    MPI_Comm_free(&device);
  }
  Implementation(const Implementation&) = delete;
  Implementation& operator=(const Implementation&) = delete;

  MPI_Op sum_of(DType type) const { return type == DType::bf16 ? bf16_sum : MPI_SUM; }
  std::int64_t message_elements(DType type) const {
    return std::max<std::int64_t>(1, message_bytes / static_cast<std::int64_t>(size_of(type)));
  }
  bool is_short(std::int64_t count, DType type) const { return count <= message_elements(type); }

  // MPI waits by spinning. Where the core has other work, the waiting thread sleeps between looks instead.
  void wait(std::span<MPI_Request> all, bool background) const {
    const int count = static_cast<int>(all.size());
    if (!background && !oversubscribed)
      return mpi_check(MPI_Waitall(count, all.data(), MPI_STATUSES_IGNORE), "MPI_Waitall");
    int done = 0;
    for (int look = 0;; ++look) {
      mpi_check(MPI_Testall(count, all.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
      if (done) return;
      if (look < patient_polls)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(nap);
    }
  }
  void wait(MPI_Request request, bool background) const { wait({&request, 1}, background); }

  // Posts one transfer in messages of bounded length, behind the requests there are.
  void post(const Transfer& t, int tag) {
    const std::int64_t piece = message_elements(t.type);
    for (std::int64_t begin = 0; begin < t.count; begin += piece) {
      const int n = static_cast<int>(std::min(piece, t.count - begin));
      void* data = t.data + to_size(begin) * size_of(t.type);
      MPI_Request& request = requests.emplace_back();
      if (t.sends)
        mpi_check(MPI_Isend(data, n, mpi_type(t.type), t.peer, tag, device, &request), "MPI_Isend");
      else
        mpi_check(MPI_Irecv(data, n, mpi_type(t.type), t.peer, tag, device, &request), "MPI_Irecv");
    }
  }
  void exchange(std::span<const Transfer> transfers, int tag, bool background) {
    requests.clear();
    for (const bool sends : {false, true})  // receives first: a message finds its place
      for (const Transfer& t : transfers)
        if (t.sends == sends) post(t, tag);
    wait(requests, background);
  }

  // mine += the peer's messages, one received while the one before is added.
  void add_received(std::byte* mine, std::int64_t count, DType type, int from, bool background) {
    const std::int64_t piece = message_elements(type);
    const std::size_t element = size_of(type);
    if (count > 0) scratch.resize(2 * to_size(piece) * element);
    const auto place = [&](std::int64_t i) { return scratch.data() + to_size(i % 2 * piece) * element; };
    const auto length = [&](std::int64_t i) { return std::min(piece, count - i * piece); };
    const auto receive = [&](std::int64_t i) {
      MPI_Request request = MPI_REQUEST_NULL;
      if (i * piece < count)
        mpi_check(MPI_Irecv(place(i), static_cast<int>(length(i)), mpi_type(type), from, tag_reduce, device, &request),
                  "MPI_Irecv");
      return request;
    };
    MPI_Request next = receive(0);
    for (std::int64_t i = 0; i * piece < count; ++i) {
      const MPI_Request now = std::exchange(next, receive(i + 1));
      wait(now, background);
      add_on_host(mine + to_size(i * piece) * element, place(i), length(i), type);
    }
  }

  // out ← Σ over ranks of their part number `rank` of in, beginning with this rank's own.
  void reduce_parts(const std::byte* in, std::byte* out, Cut cut, DType type, bool background) {
    const std::size_t element = size_of(type);
    const auto part = [&](int r) { return const_cast<std::byte*>(in) + to_size(cut.begin(r)) * element; };
    if (out != part(rank)) std::memcpy(out, part(rank), to_size(cut.size(rank)) * element);
    for (int step = 1; step < size; ++step) {
      const int to = (rank + step) % size, from = (rank - step + size) % size;
      requests.clear();
      post({part(to), cut.size(to), type, to, true}, tag_reduce);
      add_received(out, cut.size(rank), type, from, background);
      wait(requests, background);
    }
  }

  // Every part of data from the rank of its number, handed on around the ring.
  void gather_parts(std::byte* data, Cut cut, DType type, bool background) {
    const std::size_t element = size_of(type);
    const int right = (rank + 1) % size, left = (rank - 1 + size) % size;
    for (int step = 0; step < size - 1; ++step) {
      const int given = (rank - step + size) % size, taken = (rank - step - 1 + size) % size;
      const std::array<Transfer, 2> turn{
          {{data + to_size(cut.begin(given)) * element, cut.size(given), type, right, true},
           {data + to_size(cut.begin(taken)) * element, cut.size(taken), type, left, false}}};
      exchange(turn, tag_gather, background);
    }
  }

  void all_reduce(std::byte* data, std::int64_t count, DType type, bool background) {
    if (is_short(count, type)) {
      MPI_Request request = MPI_REQUEST_NULL;
      mpi_check(
          MPI_Iallreduce(MPI_IN_PLACE, data, static_cast<int>(count), mpi_type(type), sum_of(type), device, &request),
          "MPI_Iallreduce");
      return wait(request, background);
    }
    const Cut cut{count, size};
    reduce_parts(data, data + to_size(cut.begin(rank)) * size_of(type), cut, type, background);
    gather_parts(data, cut, type, background);
  }

  void all_reduce_max(std::byte* data, std::int64_t count, DType type, bool background) {
    const std::int64_t piece = message_elements(type);
    for (std::int64_t begin = 0; begin < count; begin += piece) {
      MPI_Request request = MPI_REQUEST_NULL;
      mpi_check(
          MPI_Iallreduce(MPI_IN_PLACE, data + to_size(begin) * size_of(type),
                         static_cast<int>(std::min(piece, count - begin)), mpi_type(type), MPI_MAX, device, &request),
          "MPI_Iallreduce");
      wait(request, background);
    }
  }

  void all_gather(const std::byte* in, std::byte* out, std::int64_t count, DType type, bool background) {
    const std::size_t part = to_size(count) * size_of(type);
    std::byte* own = out + to_size(rank) * part;
    if (own != in) std::memcpy(own, in, part);
    if (!is_short(count, type)) return gather_parts(out, {count * size, size}, type, background);
    MPI_Request request = MPI_REQUEST_NULL;
    mpi_check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, static_cast<int>(count), mpi_type(type), device,
                             &request),
              "MPI_Iallgather");
    wait(request, background);
  }

  void broadcast(std::byte* data, std::int64_t count, DType type, int root, bool background) {
    const std::int64_t piece = message_elements(type);
    requests.clear();
    for (std::int64_t begin = 0; begin < count; begin += piece)
      mpi_check(MPI_Ibcast(data + to_size(begin) * size_of(type), static_cast<int>(std::min(piece, count - begin)),
                           mpi_type(type), root, device, &requests.emplace_back()),
                "MPI_Ibcast");
    wait(requests, background);
  }

  std::vector<Transfer> copy_of(std::span<const Transfer> transfers) {
    std::vector<Transfer> list;
    {
      std::lock_guard lock(lists_mutex);
      if (!spare_lists.empty()) {
        list = std::move(spare_lists.back());
        spare_lists.pop_back();
      }
    }
    list.assign(transfers.begin(), transfers.end());
    return list;
  }
  void give_back(std::vector<Transfer> list) {
    std::lock_guard lock(lists_mutex);
    spare_lists.push_back(std::move(list));
  }

  // Queues f(impl, background): a stream of its own thread is background.
  template <class F>
  void enqueue(Stream& stream, F f) {
    require(!stream.native(), "MPI ranks exchange host memory; device memory needs device_communicator()");
    const bool background = !stream.runs_inline();
    stream.submit([this, background, f = std::move(f)]() mutable {
      if (!background) return f(*this, false);
      // Other ranks wait for the messages of a background stream, whoever asks it for its exception.
      try {
        f(*this, true);
      } catch (...) {
        std::terminate();
      }
    });
  }
};

MpiCommunicator::MpiCommunicator(std::unique_ptr<Implementation> impl)
    : Communicator(impl->rank, impl->size), impl_(std::move(impl)) {}

MpiCommunicator::~MpiCommunicator() = default;

std::unique_ptr<Communicator> MpiCommunicator::world(bool oversubscribed, std::int64_t message_bytes) {
  return std::unique_ptr<Communicator>(
      new MpiCommunicator(std::make_unique<Implementation>(MPI_COMM_WORLD, oversubscribed, message_bytes)));
}

void MpiCommunicator::do_all_reduce(Stream& stream, std::byte* data, std::int64_t count, DType type) {
  impl_->enqueue(stream,
                 [=](Implementation& impl, bool background) { impl.all_reduce(data, count, type, background); });
}

void MpiCommunicator::do_all_reduce_max(Stream& stream, std::byte* data, std::int64_t count, DType type) {
  impl_->enqueue(stream,
                 [=](Implementation& impl, bool background) { impl.all_reduce_max(data, count, type, background); });
}

void MpiCommunicator::do_all_gather(Stream& stream, const std::byte* in, std::byte* out, std::int64_t count,
                                    DType type) {
  impl_->enqueue(stream,
                 [=](Implementation& impl, bool background) { impl.all_gather(in, out, count, type, background); });
}

void MpiCommunicator::do_reduce_scatter(Stream& stream, const std::byte* in, std::byte* out, std::int64_t count,
                                        DType type) {
  impl_->enqueue(stream, [=](Implementation& impl, bool background) {
    impl.reduce_parts(in, out, {count * impl.size, impl.size}, type, background);
  });
}

void MpiCommunicator::do_broadcast(Stream& stream, std::byte* data, std::int64_t count, DType type, int root) {
  impl_->enqueue(stream,
                 [=](Implementation& impl, bool background) { impl.broadcast(data, count, type, root, background); });
}

void MpiCommunicator::do_exchange(Stream& stream, std::span<const Transfer> transfers) {
  impl_->enqueue(stream, [list = impl_->copy_of(transfers)](Implementation& impl, bool background) mutable {
    impl.exchange(list, tag_exchange, background);
    impl.give_back(std::move(list));
  });
}

void MpiCommunicator::do_gather_host(const std::byte* in, std::byte* out, std::size_t bytes) {
  mpi_gather_host(impl_->host, in, out, bytes);
}

void MpiCommunicator::do_broadcast_host(std::byte* data, std::size_t bytes, int root) {
  mpi_broadcast_host(impl_->host, data, bytes, root);
}

void MpiCommunicator::do_collect_host(const std::string& text, int root,
                                      const std::function<void(const std::string&)>& take) {
  mpi_collect_host(impl_->host, text, root, take);
}

void MpiCommunicator::do_collect_host(std::int64_t number, std::int64_t* all, int root) {
  mpi_check(MPI_Gather(&number, 1, MPI_INT64_T, all, 1, MPI_INT64_T, root, impl_->host), "MPI_Gather");
}

void MpiCommunicator::do_reduce_host(std::span<std::int64_t> values, HostReduction reduction) {
  mpi_reduce_host(impl_->host, values, reduction);
}

// The communicator of a part of these ranks, with duplicates of `part`, which is freed.
std::unique_ptr<Communicator> MpiCommunicator::adopt(Part part) const {
  auto impl = std::make_unique<Implementation>(part.comm, impl_->oversubscribed, impl_->message_bytes);
  mpi_check(MPI_Comm_free(&part.comm), "MPI_Comm_free");
  return std::unique_ptr<Communicator>(new MpiCommunicator(std::move(impl)));
}

std::unique_ptr<Communicator> MpiCommunicator::do_split(int color, int key) {
  MPI_Comm part = MPI_COMM_NULL;
  mpi_check(MPI_Comm_split(impl_->host, color < 0 ? MPI_UNDEFINED : color, key, &part), "MPI_Comm_split");
  return part == MPI_COMM_NULL ? nullptr : adopt({part});
}

std::unique_ptr<Communicator> MpiCommunicator::do_node() {
  if (asked_node_ranks() > 0) return Communicator::do_node();
  MPI_Comm node = MPI_COMM_NULL;
  mpi_check(MPI_Comm_split_type(impl_->host, MPI_COMM_TYPE_SHARED, rank(), MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  return adopt({node});
}

std::unique_ptr<Communicator> MpiCommunicator::do_cartesian(const Grid& grid) {
  std::vector<int> extents, periods(to_size(grid.axes()), 0);
  for (int axis = 0; axis < grid.axes(); ++axis) extents.push_back(grid.extent(axis));
  MPI_Comm ranks = MPI_COMM_NULL;
  mpi_check(MPI_Cart_create(impl_->host, grid.axes(), extents.data(), periods.data(), 0, &ranks), "MPI_Cart_create");
  return adopt({ranks});
}

std::unique_ptr<Communicator> MpiCommunicator::do_sub(const Grid& grid, AxisBits axes) {
  std::vector<int> remain;
  for (int axis = 0; axis < grid.axes(); ++axis) remain.push_back(axes >> axis & 1u);
  MPI_Comm group = MPI_COMM_NULL;
  mpi_check(MPI_Cart_sub(impl_->host, remain.data(), &group), "MPI_Cart_sub");
  return adopt({group});
}

}  // namespace forge
