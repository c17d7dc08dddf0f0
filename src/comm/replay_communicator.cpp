#include "comm/replay_communicator.hpp"

#include <algorithm>
#include <utility>

#include "core/to_size.hpp"
#include "device/hold_stream.hpp"

namespace forge {

namespace {

// The largest piece that is copied at once: beyond a GPU's cache.
constexpr std::size_t most_piece = std::size_t{64} << 20;

// to(bytes) ← from(period), again and again; `from` may be one of the repetitions.
void repeat(Stream& stream, std::byte* to, std::size_t bytes, const std::byte* from, std::size_t period) {
  std::size_t done = std::min(bytes, period);
  if (to != from && done > 0) copy_on_device(stream, to, from, done);
  while (done > 0 && done < bytes) {
    const std::size_t more = std::min(done, bytes - done);
    copy_on_device(stream, to + done, to, more);
    done += more;
  }
}

}  // namespace

ReplayWire::ReplayWire(WireKind kind, Price price, int blocks)
    : kind_(kind), price_(std::move(price)), blocks_(blocks) {
  require(kind != WireKind::time || price_, "a wire that takes time needs the seconds of its calls");
}

bool ReplayWire::keeps(const std::byte* data) const {
  return std::any_of(kept_.begin(), kept_.end(),
                     [&](const auto& memory) { return data >= memory.data() && data < memory.data() + memory.size(); });
}

Buffer& ReplayWire::scratch_of(Stream& stream) {
  Buffer& scratch = scratch_[&stream];
  if (scratch.bytes() > 0) return scratch;
  scratch = Buffer(2 * most_piece);
  fill_zero(stream, scratch.data(), scratch.bytes());
  return scratch;
}

void ReplayWire::carry(Stream& stream, const Sent& call, std::int64_t bytes) {
  if (kind_ == WireKind::none || bytes == 0) return;
  const Buffer& scratch = scratch_of(stream);
  std::byte* const to = scratch.data() + most_piece;
  if (kind_ == WireKind::time)
    return hold_stream(stream, {blocks_, price_(call), to, scratch.data(), most_piece, to_size(bytes)});
  for (std::size_t left = to_size(bytes); left > 0;) {
    const std::size_t piece = std::min(left, most_piece);
    copy_on_device(stream, to, scratch.data(), piece);
    left -= piece;
  }
}

void ReplayCommunicator::carry(Stream& stream, Collective collective, std::int64_t count, DType type) {
  const std::int64_t bytes = sent_elements(collective, count, size()) * static_cast<std::int64_t>(size_of(type));
  wire_->carry(stream, {group(), collective, count, type}, bytes);
}

// A pair's mean part; of messages the direction that has more.
void ReplayCommunicator::carry_exchange(Stream& stream, Collective collective, std::span<const Transfer> transfers) {
  std::int64_t sent = 0, received = 0;
  for (const Transfer& t : transfers)
    (t.sends ? sent : received) += static_cast<std::int64_t>(byte_count(t.count, t.type));
  const std::int64_t most = std::max(sent, received);
  const std::int64_t count = collective == Collective::all_to_all ? most / (size() - 1) : most;
  wire_->carry(stream, {group(), collective, count, DType::u8}, most);
}

void ReplayCommunicator::do_all_reduce(Stream& stream, std::byte*, std::int64_t count, DType type) {
  carry(stream, Collective::all_reduce, count, type);
}

void ReplayCommunicator::do_all_reduce_max(Stream& stream, std::byte*, std::int64_t count, DType type) {
  carry(stream, Collective::all_reduce, count, type);
}

void ReplayCommunicator::do_all_gather(Stream& stream, const std::byte* in, std::byte* out, std::int64_t count,
                                       DType type) {
  const std::size_t bytes = byte_count(count, type);
  std::byte* const own = out + to_size(rank()) * bytes;
  if (!wire_->keeps(out))
    repeat(stream, out, to_size(size()) * bytes, in, bytes);
  else if (own != in)
    copy_on_device(stream, own, in, bytes);
  carry(stream, Collective::all_gather, count, type);
}

void ReplayCommunicator::do_reduce_scatter(Stream& stream, const std::byte* in, std::byte* out, std::int64_t count,
                                           DType type) {
  const std::size_t bytes = byte_count(count, type);
  const std::byte* const own = in + to_size(rank()) * bytes;
  if (out != own) copy_on_device(stream, out, own, bytes);
  carry(stream, Collective::reduce_scatter, count, type);
}

void ReplayCommunicator::do_broadcast(Stream& stream, std::byte*, std::int64_t count, DType type, int) {
  carry(stream, Collective::broadcast, count, type);
}

// Receives that follow each other in memory are filled together.
void ReplayCommunicator::receive_from(Stream& stream, std::span<const Transfer> transfers, const std::byte* from,
                                      std::size_t period) {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  const auto fill = [&] {
    if (bytes == 0 || wire_->keeps(begin)) return;
    if (period > 0)
      repeat(stream, begin, bytes, from, period);
    else
      fill_zero(stream, begin, bytes);
  };
  for (const Transfer& t : transfers) {
    if (t.sends) continue;
    if (t.data != begin + bytes) {
      fill();
      begin = t.data;
      bytes = 0;
    }
    bytes += byte_count(t.count, t.type);
  }
  fill();
}

void ReplayCommunicator::do_all_to_all(Stream& stream, std::span<const Transfer> transfers,
                                       std::span<const Exchange> exchanges) {
  const std::size_t self = to_size(rank());
  std::size_t begin = 0;
  for (const auto& [send, receive, type] : exchanges) {
    std::size_t end = begin;
    for (std::size_t r = 0; r < send.size(); ++r)
      if (r != self) end += (send[r].count > 0) + (receive[r].count > 0);
    const std::span<const Transfer> own_transfers = transfers.subspan(begin, end - begin);
    if (send[self].count > 0)
      receive_from(stream, own_transfers, static_cast<const std::byte*>(send[self].data),
                   byte_count(send[self].count, type));
    else
      receive_what_is_sent(stream, own_transfers);
    begin = end;
  }
  carry_exchange(stream, Collective::all_to_all, transfers);
}

// From the longest part that is sent.
void ReplayCommunicator::receive_what_is_sent(Stream& stream, std::span<const Transfer> transfers) {
  const std::byte* from = nullptr;
  std::size_t longest = 0;
  for (const Transfer& t : transfers)
    if (const std::size_t bytes = byte_count(t.count, t.type); t.sends && bytes > longest) {
      from = t.data;
      longest = bytes;
    }
  receive_from(stream, transfers, from, longest);
}

void ReplayCommunicator::do_exchange(Stream& stream, std::span<const Transfer> transfers) {
  receive_what_is_sent(stream, transfers);
  carry_exchange(stream, Collective::send, transfers);
}

// Host operations ask nobody (has_peers).
void ReplayCommunicator::do_gather_host(const std::byte*, std::byte*, std::size_t) {
  throw Error("a replayed rank has no other ranks to ask");
}
void ReplayCommunicator::do_broadcast_host(std::byte*, std::size_t, int) {
  throw Error("a replayed rank has no other ranks to ask");
}
void ReplayCommunicator::do_collect_host(const std::string&, int, const std::function<void(const std::string&)>&) {
  throw Error("a replayed rank has no other ranks to ask");
}

std::unique_ptr<Communicator> ReplayCommunicator::do_split(int, int) {
  return std::make_unique<ReplayCommunicator>(rank(), size(), wire_);
}

std::unique_ptr<Communicator> ReplayCommunicator::do_part(const std::function<int(int rank)>& number_of) {
  const int own = number_of(rank());
  if (own < 0) return nullptr;
  int members = 0, before = 0;
  for (int r = 0; r < size(); ++r)
    if (number_of(r) == own) {
      before += r < rank();
      ++members;
    }
  return std::make_unique<ReplayCommunicator>(before, members, wire_);
}

std::unique_ptr<Communicator> ReplayCommunicator::do_sub(const Grid& grid, AxisBits axes) {
  return std::make_unique<ReplayCommunicator>(grid.index_in_group(rank(), axes), grid.group_size(axes), wire_);
}

}  // namespace forge
