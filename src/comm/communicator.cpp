#include "comm/communicator.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "comm/device_communicator.hpp"
#include "comm/thread_communicator.hpp"
#include "config/node_ranks.hpp"
#include "core/to_size.hpp"
#include "device/device_memory.hpp"

namespace forge {

namespace {

std::byte* bytes_of(void* p) {
  return static_cast<std::byte*>(p);
}
const std::byte* bytes_of(const void* p) {
  return static_cast<const std::byte*>(p);
}

void check_summable(DType type) {
  switch (type) {
    case DType::f64:
    case DType::f32:
    case DType::bf16:
    case DType::i32:
    case DType::i64:
      return;
    default:
      throw Error("ranks don't add values of type " + std::string(name_of(type)));
  }
}

}  // namespace

std::unique_ptr<Communicator> Communicator::split(int color, int key) {
  return counted(do_split(color, key));
}

// Ranks that split learn of each other's colors and keys.
std::unique_ptr<Communicator> Communicator::counted(std::unique_ptr<Communicator> part) {
  if (has_peers()) host_traffic_->add_gather(size_, 2 * static_cast<std::int64_t>(sizeof(int)));
  if (part) part->host_traffic_ = host_traffic_;
  return part;
}

std::unique_ptr<Communicator> Communicator::cartesian(const Grid& grid) {
  require(grid.size() == size_, "a grid has as many places as its communicator has ranks");
  auto ranks = counted(do_cartesian(grid));
  ranks->grid_ = grid;
  return ranks;
}

std::unique_ptr<Communicator> Communicator::sub(AxisBits axes) {
  require(grid_.has_value(), "only a communicator on a grid has groups along its axes");
  if (grid_->group_size(axes) == 1) return self_communicator();
  return counted(do_sub(*grid_, axes));
}

std::unique_ptr<Communicator> Communicator::do_cartesian(const Grid&) {
  return do_split(0, rank_);
}

std::unique_ptr<Communicator> Communicator::do_sub(const Grid& grid, AxisBits axes) {
  return do_split(grid.group_number(rank_, axes), rank_);
}

std::unique_ptr<Communicator> Communicator::do_part(const std::function<int(int rank)>& number_of) {
  return do_split(number_of(rank_), rank_);
}

std::unique_ptr<Communicator> Communicator::do_device() {
  return device_communicator(*this);
}

void Communicator::do_all_to_all(Stream& stream, std::span<const Transfer> transfers, std::span<const Exchange>) {
  do_exchange(stream, transfers);
}

void Communicator::count_sent(Collective collective, std::int64_t elements, DType type) {
  traffic_.add(collective, elements * static_cast<std::int64_t>(size_of(type)));
}

void Communicator::check_peer(int peer) const {
  if (peer < 0 || peer >= size_)
    throw Error("rank " + std::to_string(peer) + " is not in a group of " + std::to_string(size_));
}

// A rank that has nothing to send takes its turn like the others.
template <class Operation>
void Communicator::give(Stream& stream, Collective collective, Operation operation, bool any) {
  if (size_ == 1) return;
  const auto run = [&](Stream& s) {
    if (!any) return;
    const auto time = measured(s, collective);
    operation(s);
  };
  if (tracks_ && tracks_->takes(stream)) return tracks_->exchange(run);
  run(stream);
}

void Communicator::all_reduce(Stream& stream, void* data, std::int64_t count, DType type) {
  check_summable(type);
  count_sent(Collective::all_reduce, sent_elements(Collective::all_reduce, count, size_), type);
  give(
      stream, Collective::all_reduce, [&](Stream& s) { do_all_reduce(s, bytes_of(data), count, type); }, count > 0);
}

void Communicator::all_reduce_max(Stream& stream, void* data, std::int64_t count, DType type) {
  require(type == DType::f64 || type == DType::f32, "the largest is found of fp64 and fp32 alone");
  count_sent(Collective::all_reduce, sent_elements(Collective::all_reduce, count, size_), type);
  give(
      stream, Collective::all_reduce, [&](Stream& s) { do_all_reduce_max(s, bytes_of(data), count, type); }, count > 0);
}

void Communicator::all_gather(Stream& stream, const void* in, void* out, std::int64_t count, DType type) {
  count_sent(Collective::all_gather, sent_elements(Collective::all_gather, count, size_), type);
  if (size_ == 1 && count > 0) return copy_on_device(stream, out, in, byte_count(count, type));
  give(
      stream, Collective::all_gather, [&](Stream& s) { do_all_gather(s, bytes_of(in), bytes_of(out), count, type); },
      count > 0);
}

void Communicator::reduce_scatter(Stream& stream, const void* in, void* out, std::int64_t count, DType type) {
  check_summable(type);
  count_sent(Collective::reduce_scatter, sent_elements(Collective::reduce_scatter, count, size_), type);
  if (size_ == 1 && count > 0) return copy_on_device(stream, out, in, byte_count(count, type));
  give(
      stream, Collective::reduce_scatter,
      [&](Stream& s) { do_reduce_scatter(s, bytes_of(in), bytes_of(out), count, type); }, count > 0);
}

void Communicator::reduce_scatter_blocks(Stream& stream, void* data, std::int64_t blocks, std::int64_t count,
                                         DType type) {
  check_summable(type);
  count_sent(Collective::reduce_scatter, sent_elements(Collective::reduce_scatter, blocks * count, size_), type);
  give(
      stream, Collective::reduce_scatter,
      [&](Stream& s) { do_reduce_scatter_blocks(s, bytes_of(data), blocks, count, type); }, blocks * count > 0);
}

void Communicator::do_reduce_scatter_blocks(Stream& stream, std::byte* data, std::int64_t blocks, std::int64_t count,
                                            DType type) {
  const std::size_t part = byte_count(count, type), whole = to_size(size_) * part;
  for (std::byte* block = data; block != data + to_size(blocks) * whole; block += whole)
    do_reduce_scatter(stream, block, block + to_size(rank_) * part, count, type);
}

void Communicator::broadcast(Stream& stream, void* data, std::int64_t count, DType type, int root) {
  check_peer(root);
  count_sent(Collective::broadcast, root == rank_ ? sent_elements(Collective::broadcast, count, size_) : 0, type);
  give(
      stream, Collective::broadcast, [&](Stream& s) { do_broadcast(s, bytes_of(data), count, type, root); }, count > 0);
}

void Communicator::connect(Stream& stream) {
  if (size_ == 1) return;
  const std::size_t half = byte_count(size_, DType::i32);
  const Buffer numbers(2 * half);
  fill_zero(stream, numbers.data(), numbers.bytes());
  transfers_.clear();
  for (const bool sends : {true, false})
    for (int r = 0; r < size_; ++r)
      if (r != rank_)
        transfers_.push_back(
            {numbers.data() + (sends ? 0 : half) + byte_count(r, DType::i32), 1, DType::i32, r, sends});
  do_exchange(stream, transfers_);
  stream.synchronize();
}

void Communicator::all_to_all(Stream& stream, const void* in, void* out, std::int64_t count, DType type) {
  for (auto& [list, data] : {std::pair{&sent_, in}, {&received_, static_cast<const void*>(out)}}) {
    list->clear();
    for (int r = 0; r < size_; ++r)
      list->push_back({bytes_of(const_cast<void*>(data)) + byte_count(r * count, type), count});
  }
  all_to_all(stream, sent_, received_, type);
}

void Communicator::all_to_all(Stream& stream, const void* in, std::span<const std::int64_t> send_counts, void* out,
                              std::span<const std::int64_t> receive_counts, DType type) {
  const auto set_parts = [type](std::vector<Part>& list, const void* data, std::span<const std::int64_t> counts) {
    list.clear();
    std::byte* at = bytes_of(const_cast<void*>(data));
    for (const std::int64_t count : counts) {
      list.push_back({at, count});
      at += byte_count(count, type);
    }
  };
  set_parts(sent_, in, send_counts);
  set_parts(received_, out, receive_counts);
  all_to_all(stream, sent_, received_, type);
}

void Communicator::all_to_all(Stream& stream, std::span<const Exchange> exchanges) {
  const auto size = to_size(size_), self = to_size(rank_);
  transfers_.clear();
  std::size_t sent = 0;
  for (const auto& [send, receive, type] : exchanges) {
    require(send.size() == size && receive.size() == size, "an all-to-all needs one part a rank");
    require(send[self].count == receive[self].count, "an all-to-all's own part has two lengths");
    for (std::size_t r = 0; r < size; ++r) {
      if (r == self) continue;
      const int peer = static_cast<int>(r);
      if (send[r].count > 0) transfers_.push_back({bytes_of(send[r].data), send[r].count, type, peer, true});
      if (receive[r].count > 0) transfers_.push_back({bytes_of(receive[r].data), receive[r].count, type, peer, false});
      sent += byte_count(send[r].count, type);
    }
    if (send[self].count > 0 && send[self].data != receive[self].data)
      copy_on_device(stream, receive[self].data, send[self].data, byte_count(send[self].count, type));
  }
  traffic_.add(Collective::all_to_all, static_cast<std::int64_t>(sent));
  give(
      stream, Collective::all_to_all, [&](Stream& s) { do_all_to_all(s, transfers_, exchanges); }, !transfers_.empty());
}

void Communicator::group_begin() {
  require(!grouping_, "groups of transfers don't nest");
  grouping_ = true;
}

void Communicator::group_end(Stream& stream) {
  require(grouping_, "a group of transfers ended that had not begun");
  grouping_ = false;
  exchange(stream, group_);
}

void Communicator::transfer(Stream& stream, Transfer t) {
  check_peer(t.peer);
  if (t.sends) count_sent(Collective::send, t.peer == rank_ ? 0 : t.count, t.type);
  if (t.count == 0) return;
  if (grouping_)
    group_.push_back(t);
  else
    exchange(stream, {&t, 1});
}

void Communicator::exchange(Stream& stream, std::span<const Transfer> transfers) {
  const auto all = [&](Stream& s) {
    do_exchange(s, transfers);
    group_.clear();  // before another track's turn
  };
  if (size_ > 1) return give(stream, Collective::send, all, !transfers.empty());
  std::vector<Transfer> sends, receives;
  for (const Transfer& t : transfers) (t.sends ? sends : receives).push_back(t);
  require(sends.size() == receives.size(), "one rank alone sends and receives in pairs, within a group");
  for (std::size_t i = 0; i < sends.size(); ++i) {
    const std::size_t bytes = byte_count(sends[i].count, sends[i].type);
    require(bytes == byte_count(receives[i].count, receives[i].type), "a message to itself has two lengths");
    copy_on_device(stream, receives[i].data, sends[i].data, bytes);
  }
  group_.clear();
}

void Communicator::send(Stream& stream, const void* data, std::int64_t count, DType type, int to) {
  transfer(stream, {bytes_of(const_cast<void*>(data)), count, type, to, true});
}

void Communicator::receive(Stream& stream, void* data, std::int64_t count, DType type, int from) {
  transfer(stream, {bytes_of(data), count, type, from, false});
}

template <class T>
void Communicator::reduce_host(std::span<T> values, HostReduction reduction) {
  if (!has_peers() || values.empty()) return;
  host_traffic_->add_reduction(size_, static_cast<std::int64_t>(values.size_bytes()));
  do_reduce_host(values, reduction);
}
template void Communicator::reduce_host(std::span<double>, HostReduction);
template void Communicator::reduce_host(std::span<std::int64_t>, HostReduction);

template <class T>
void Communicator::reduce_gathered(std::span<T> values, HostReduction reduction) {
  const std::size_t bytes = values.size_bytes();
  host_values_.resize(bytes * to_size(size_));
  do_gather_host(reinterpret_cast<const std::byte*>(values.data()), host_values_.data(), bytes);
  combine_ranks(values, size_, reduction, [&](int r) { return host_values_.data() + to_size(r) * bytes; });
}

void Communicator::do_reduce_host(std::span<double> values, HostReduction reduction) {
  reduce_gathered(values, reduction);
}
void Communicator::do_reduce_host(std::span<std::int64_t> values, HostReduction reduction) {
  reduce_gathered(values, reduction);
}

std::unique_ptr<Communicator> Communicator::do_node() {
  const int ranks = asked_node_ranks();
  return do_split(ranks > 0 ? rank_ / ranks : 0, rank_);
}

Communicator::RankText Communicator::first_text(const std::string& text) {
  std::int64_t first = text.empty() ? size_ : rank_;
  min_host({&first, 1});
  if (first == size_) return {};
  RankText found{static_cast<int>(first), text};
  broadcast_host(found.text, found.rank);
  return found;
}

void Communicator::broadcast_host(std::string& text, int root) {
  check_peer(root);
  if (!has_peers()) return;
  std::int64_t length = static_cast<std::int64_t>(text.size());
  const int place = (rank_ - root + size_) % size_;
  host_traffic_->add_broadcast(size_, place, sizeof length);
  do_broadcast_host(reinterpret_cast<std::byte*>(&length), sizeof length, root);
  text.resize(to_size(length));
  if (length == 0) return;
  host_traffic_->add_broadcast(size_, place, length);
  do_broadcast_host(reinterpret_cast<std::byte*>(text.data()), text.size(), root);
}

std::vector<std::string> Communicator::gather_host(const std::string& text) {
  if (!has_peers()) return {text};
  const auto size = to_size(size_);
  const std::int64_t length = static_cast<std::int64_t>(text.size());
  std::vector<std::int64_t> lengths(size);
  host_traffic_->add_gather(size_, sizeof length);
  do_gather_host(reinterpret_cast<const std::byte*>(&length), reinterpret_cast<std::byte*>(lengths.data()),
                 sizeof length);
  // Texts are short (a hash, a name, an error): all are padded to the longest.
  const auto longest = to_size(*std::max_element(lengths.begin(), lengths.end()));
  std::string mine = text, all(longest * size, ' ');
  mine.resize(longest);
  if (longest > 0) {
    host_traffic_->add_gather(size_, static_cast<std::int64_t>(longest));
    do_gather_host(reinterpret_cast<const std::byte*>(mine.data()), reinterpret_cast<std::byte*>(all.data()), longest);
  }
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < size; ++r) texts.push_back(all.substr(r * longest, to_size(lengths[r])));
  return texts;
}

void Communicator::collect_host(const std::string& text, int root,
                                const std::function<void(const std::string&)>& take) {
  check_peer(root);
  std::exception_ptr failure;
  std::int64_t bytes = -static_cast<std::int64_t>(text.size());  // received
  const auto guarded = [&](const std::string& one) {
    bytes += static_cast<std::int64_t>(one.size());
    if (failure) return;
    try {
      take(one);
    } catch (...) {
      failure = std::current_exception();
    }
  };
  if (!has_peers())
    guarded(text);
  else {
    do_collect_host(text, root, guarded);
    host_traffic_->add(rank_ == root ? size_ - 1 : 1, rank_ == root ? bytes : static_cast<std::int64_t>(text.size()));
  }
  if (failure) std::rethrow_exception(failure);
}

std::vector<std::int64_t> Communicator::collect_host(std::int64_t number, int root) {
  check_peer(root);
  if (!has_peers()) return {number};
  host_traffic_->add_collection(size_, (rank_ - root + size_) % size_, sizeof number);
  std::vector<std::int64_t> all(rank_ == root ? to_size(size_) : 0);
  do_collect_host(number, all.data(), root);
  return all;
}

void Communicator::barrier() {
  std::int64_t nothing = 0;
  sum_host({&nothing, 1});
}

}  // namespace forge
