#include "optim/matrix_update.hpp"

#include <algorithm>
#include <cmath>

#include "optim/rule.hpp"

namespace forge {

namespace {

// By the shape of the layer's matrix, (out, in): 0.2 √max(out, in), with which an update is as long as AdamW's (Liu et
// al. 2025), or √max(1, out/in) (Jordan et al. 2024). Owners have scaled NorMuon's and SOAP's.
double scale_of(const OptimizerDeck& deck, std::int64_t rows, std::int64_t columns) {
  if (row_of(deck.name).keeps(StateOwner::matrix_owner)) return 1;
  const auto out = static_cast<double>(rows), in = static_cast<double>(columns);
  return deck.muon_scale == MuonScale::keller ? std::sqrt(std::max(1.0, out / in)) : 0.2 * std::sqrt(std::max(out, in));
}

MatrixPlace place_in(const MatrixStack& stack, const OwnedPart& part) {
  return {stack.columns, part.row, part.column, part.width, part.first, part.count};
}

}  // namespace

template <class T>
MatrixUpdate<T>::MatrixUpdate(const ParameterStorage<T>& storage, const OptimizerDeck& deck,
                              const UpdateTools<T>& tools)
    : deck_(deck), tools_(tools), newton_schulz_(tools.gemm, tools.matrices.batch), rotation_(tools.gemm) {
  const WholeMatrices& plan = tools.matrices;
  if (plan.buffers > 1) stream_.open();
  for (const MatrixRound& round : plan.rounds) {
    Round& mine = rounds_.emplace_back(Round{round, {}});
    for (std::size_t begin = 0, end = 0; begin < round.held.size(); begin = end) {
      const HeldPart& first = round.held[begin];
      HeldPart whole = first;
      for (end = begin + 1; end < round.held.size(); ++end) {
        const HeldPart& next = round.held[end];
        const bool alike = next.rows == first.rows && next.columns == first.columns && next.rule == first.rule;
        if (!alike || rounds_state(storage.unit(first.unit)) || next.unit != first.unit ||
            next.elements.begin != whole.elements.end)
          break;
        whole.elements.end = next.elements.end;
      }
      mine.held.push_back({run_of(storage.unit(first.unit), whole.elements, first.rule, tools.seed), first.at,
                           scale_of(deck, first.rows, first.columns)});
    }
  }
}

template <class T>
void MatrixUpdate<T>::start() {
  frame_.emplace(tools_.arena);
  allocate(tools_.arena, tools_.buffers, Category::workspace, buffers_, tools_.matrices);
}

template <class T>
void MatrixUpdate<T>::finish() {
  stream_.rethrow();
  frame_.reset();
}

template <class T>
void MatrixUpdate<T>::gather(Stream& compute, int round, int buffer, const Update& update) {
  const View<T, 1>& parts = buffers_.held[to_size(buffer)];
  for (const Held& held : rounds_[to_size(round)].held) {
    const View<T, 1> values = parts.slice(held.at, held.at + held.run.size());
    if (tools_.matrices.rotates)
      soap_prepare<T>(compute, update.of(held.run.rule), held.run, values);
    else
      muon_prepare<T>(compute, deck_, update.of(held.run.rule), held.run, values);
  }
  if (stream_)
    stream_.run(compute, gathered_[to_size(buffer)], [&](Stream& stream) { exchange(stream, round, buffer, false); });
}

template <class T>
void MatrixUpdate<T>::give_back(Stream& compute, int round, int buffer) {
  stream_.run(compute, returned_[to_size(buffer)], [&](Stream& stream) { exchange(stream, round, buffer, true); });
}

template <class T>
void MatrixUpdate<T>::exchange(Stream& stream, int round, int buffer, bool back) {
  const MatrixRound& plan = rounds_[to_size(round)].plan;
  const View<T, 1>& parts = buffers_.held[to_size(buffer)];
  Communicator& group = tools_.mesh.matrices(plan.experts);
  if (group.size() == 1) return;
  group.group_begin();
  for (const HeldPart& part : plan.held) {
    if (part.owner == plan.rank) continue;
    const View<T, 1> data = parts.slice(part.at, part.end());
    if (back)
      group.receive(stream, data, part.owner);
    else if (part.sends)
      group.send(stream, data, part.owner);
  }
  for (const MatrixStack& stack : plan.stacks)
    for (const OwnedPart& part : stack.parts) {
      if (part.holder == plan.rank) continue;
      if (back)
        group.send(stream, memory_of(part, buffer), part.holder);
      else if (part.sent)
        group.receive(stream, memory_of(part, buffer), part.holder);
    }
  group.group_end(stream);
}

template <class T>
View<T, 1> MatrixUpdate<T>::memory_of(const OwnedPart& part, int buffer) const {
  return (part.held ? buffers_.held : buffers_.received)[to_size(buffer)].slice(part.at, part.at + part.count);
}

template <class T>
View<T, 1> MatrixUpdate<T>::updates_of(Stream& stream, const MatrixStack& stack, const Update& update) {
  const std::int64_t matrices = stack.count(), elements = stack.rows * stack.columns;
  const auto kept = tools_.line_moments.slice(stack.first_kept, stack.first_kept + matrices * stack.kept());
  if (stack.rotates) {
    for (std::int64_t i = 0; i < matrices; ++i)
      rotation_(stream, deck_, update.of({}), RotatedState(stack.state),
                kept.slice(i * stack.kept(), (i + 1) * stack.kept()),
                buffers_.x.slice(i * elements, (i + 1) * elements), buffers_.rotation);
    return buffers_.x;
  }
  const View<T, 1> result = newton_schulz_(stream, buffers_, matrices, stack.rows, stack.columns);
  if (deck_.name == OptimizerName::normuon)
    normuon_rows<T>(stream, deck_, update.of({}), View<T, 3>(result.data, {{matrices, stack.rows, stack.columns}}),
                    kept, buffers_.row_squares, buffers_.norms);
  return result;
}

template <class T>
void MatrixUpdate<T>::compute(Stream& compute, int round, int buffer, const Update& update) {
  if (stream_) gathered_[to_size(buffer)].wait(compute);
  for (const MatrixStack& stack : rounds_[to_size(round)].plan.stacks) {
    const std::int64_t elements = stack.rows * stack.columns;
    const auto matrix = [&](const View<T, 1>& all, const OwnedPart& part) {
      return all.slice(part.matrix * elements, (part.matrix + 1) * elements);
    };
    for (const OwnedPart& part : stack.parts)
      if (part.sent) put_part<T>(compute, place_in(stack, part), memory_of(part, buffer), matrix(buffers_.x, part));
    const View<T, 1> result = updates_of(compute, stack, update);
    for (const OwnedPart& part : stack.parts)
      if (part.sent) take_part<T>(compute, place_in(stack, part), matrix(result, part), memory_of(part, buffer));
  }
}

template <class T>
void MatrixUpdate<T>::update(Stream& compute, int round, int buffer, const Update& update) {
  if (stream_) returned_[to_size(buffer)].wait(compute);
  const Round& mine = rounds_[to_size(round)];
  const View<T, 1>& parts = buffers_.held[to_size(buffer)];
  for (const Held& held : mine.held) {
    UpdateStep step = update.of(held.run.rule);
    // The first one makes bases alone: neither update nor decay.
    if (tools_.matrices.rotates && step.number == 1) step.rate = 0;
    muon_apply<T>(compute, deck_, step, held.run, parts.slice(held.at, held.at + held.run.size()), held.scale);
  }
}

FORGE_INSTANTIATE_CLASS(MatrixUpdate);

}  // namespace forge
