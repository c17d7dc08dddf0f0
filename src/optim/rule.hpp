#pragma once

#include "config/deck.hpp"
#include "config/optimizer_table.hpp"
#include "optim/update.hpp"

namespace forge {

// Updates of optimizers that treat each element for itself. Each is defined, with its formula and source, in the file
// of its name.
template <class T>
void adamw(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateArgs<T>& run);
template <class T>
void lion(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateArgs<T>& run);
template <class T>
void schedule_free(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateArgs<T>& run);
template <class T>
void sgd(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateArgs<T>& run);

// The update of the deck's optimizer, or of the one beside its whole matrices.
template <class T>
void update_run(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateArgs<T>& run) {
  switch (deck.name) {
    case OptimizerName::adamw:
    case OptimizerName::muon:
    case OptimizerName::normuon:
    case OptimizerName::soap:
      return adamw(stream, deck, step, run);
    case OptimizerName::lion:
      return lion(stream, deck, step, run);
    case OptimizerName::schedule_free:
      return schedule_free(stream, deck, step, run);
    case OptimizerName::sgd:
      return sgd(stream, deck, step, run);
    case OptimizerName::adafactor:
      throw Error("adafactor doesn't treat each element for itself");
  }
}

// averages ← the weights to use, of weights that schedule_free trains and their lead.
template <class A>
void schedule_free_averages(Stream& stream, const OptimizerDeck& deck, View<const A, 1> trained, View<const A, 1> lead,
                            View<A, 1> averages);
// trained ↔ averages.
template <class A>
void exchange_weights(Stream& stream, View<A, 1> trained, View<A, 1> averages);

// Updates of whole matrices, on the elements that a rank holds: the input that an owner needs of them, before it
// computes, and the use of its result. `values`: of the run's elements, made by the first, read by the second. `scale`:
// of the matrix's shape.
template <class T>
void muon_prepare(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateArgs<T>& run,
                  View<T, 1> values);
template <class T>
void muon_apply(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, const UpdateArgs<T>& run,
                View<const T, 1> values, double scale);
// The preparation for SOAP, whose update an owner makes (optim/rotation.hpp), before it computes.
template <class T>
void soap_prepare(Stream& stream, const UpdateStep& step, const UpdateArgs<T>& run, View<T, 1> values);
// NorMuon's scaling of the owner's orthogonal matrices o (B, m, n), before they are sent back.
template <class T>
void normuon_rows(Stream& stream, const OptimizerDeck& deck, const UpdateStep& step, View<T, 3> o,
                  View<acc_t<T>, 1> second_moments, View<double, 1> row_squares, View<double, 1> norms);

}  // namespace forge
