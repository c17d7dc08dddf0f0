#include "train/restart.hpp"

#include <array>

#include "checkpoint/directory.hpp"
#include "checkpoint/shared_state.hpp"
#include "config/path_hint.hpp"
#include "config/text.hpp"
#include "core/bytes.hpp"
#include "core/file_errors.hpp"
#include "core/parse.hpp"
#include "core/to_size.hpp"
#include "hf/safetensors.hpp"

namespace forge {

namespace fs = std::filesystem;

namespace {

std::vector<std::string> paths_of(const std::vector<StepDirectory>& steps) {
  std::vector<std::string> paths;
  for (const StepDirectory& step : steps) paths.push_back(step.path);
  return paths;
}

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

// What the command line lets a start continue from, the best first.
std::vector<std::string> restart_candidates(const RestartRequest& request, const CheckpointDeck& deck) {
  const std::string& directory = deck.directory;
  if (!request.from.empty() && request.from != "latest") return checkpoints_at(request.from, "--restart ", directory);
  if (directory.empty()) return {};
  const auto steps = committed_steps(directory);
  if (request.from == "latest" || (deck.resume == Resume::automatic && !request.fresh && !steps.empty())) {
    if (steps.empty()) throw BadCheckpoint("--restart latest: " + directory + " holds no checkpoint");
    return paths_of(steps);
  }
  if (!steps.empty() && !request.fresh)
    throw BadInput("checkpoint.directory " + directory + " holds checkpoints (" +
                   fs::path(steps.front().path).filename().string() +
                   "); say --restart latest to go on from there, or --fresh to move them aside and start anew");
  return {};
}

// Where `path`, the directory itself or a step in it, is when all steps have been moved to `aside`: relative to the
// directory. "" when it is neither.
std::string moved_place(const std::string& path, const std::string& directory, const std::string& aside) {
  const fs::path from = without_slash(path);
  if (same_place(from, directory)) return aside;
  if (!from.has_filename() || !same_place(fs::absolute(from).parent_path(), directory)) return "";
  return step_of_name(from.filename()) < 0 ? "" : aside + "/" + from.filename().string();
}

// Runs f, which looks at one candidate on this rank; "" or why it is no good. What the deck has wrong is thrown on all
// ranks, damage is returned on all ranks: the first rank's text that is not empty.
template <class F>
std::string examined(Communicator& ranks, F f) {
  std::string damage, wrong;
  try {
    f();
  } catch (const BadCheckpoint& error) {
    damage = error.what();
  } catch (const BadInput& error) {
    wrong = error.what();
  } catch (const IoFailed& error) {
    throw IoFailed(error.what() +
                   std::string("; the checkpoint may be whole, and nothing was moved aside: the same start "
                               "goes on from it when the file can be read"));
  }
  const auto first = ranks.first_text(wrong);
  if (first.rank >= 0) throw BadInput(first.text);
  return ranks.first_text(damage).text;
}

// Every tensor of the session is there, with its shape; types are converted.
void compare_tensors(const CheckpointFiles& files, const std::vector<StateTensor>& wanted) {
  for (const StateTensor& tensor : wanted) {
    const StoredTensor* stored = files.find(tensor.name);
    if (!stored)
      throw BadInput("the model has a tensor " + tensor.name + " " + shape_text(tensor.shape) + ", the checkpoint " +
                     files.directory() + " has no tensor of this name" + legal_history(tensor.name, nullptr));
    if (stored->shape != tensor.shape)
      throw BadInput("tensor " + tensor.name + " is " + shape_text(tensor.shape) + ", in the checkpoint " +
                     files.directory() + " it is " + shape_text(stored->shape) +
                     legal_history(tensor.name, &stored->shape));
  }
}

// Every rank has read one manifest: files may be copies on each node.
void agree(Communicator& ranks, const CheckpointFiles& files) {
  std::string first = hex_of(files.hash());
  ranks.broadcast_host(first, 0);
  if (first != hex_of(files.hash()))
    throw BadCheckpoint(files.directory() + " of rank " + std::to_string(ranks.rank()) + " differs from rank 0's");
}

std::string text_of(const std::vector<std::string>& lines) {
  return joined(lines, "\n  ");
}

// "DIR/step_00000008, step 8, written by 4 ranks"
std::string origin(const CheckpointFiles& files) {
  const CheckpointFacts& facts = files.facts();
  return files.directory() + ", step " + std::to_string(facts.step) + ", written by " + std::to_string(facts.ranks) +
         (facts.ranks == 1 ? " rank" : " ranks");
}

// The first candidate that is whole, loaded into what `wanted` leaves of `all`; the others are noted. Of the
// candidates and `check` the first rank's count: what of the deck doesn't fit. A node's first rank reads the tables for
// the others there.
template <class Check, class Wanted>
std::unique_ptr<CheckpointFiles> load_first(Communicator& ranks, Stream& stream, const std::vector<StateTensor>& all,
                                            Wanted wanted, const std::vector<std::string>& candidates, Check check,
                                            std::vector<std::string>& notes, Heartbeat* heartbeat) {
  std::string damaged;
  auto count = static_cast<std::int64_t>(candidates.size());
  ranks.max_host({&count, 1});
  const auto node = ranks.node();
  const LoadedState parts = split_shared(ranks, all);
  for (std::size_t i = 0; i < to_size(count); ++i) {
    std::string path = ranks.rank() == 0 ? candidates[i] : "";
    ranks.broadcast_host(path, 0);
    std::unique_ptr<CheckpointFiles> files;
    std::vector<StateTensor> state = all;
    const DatasetFilter needed = datasets_of(ranks.rank() == 0 ? all : parts.own);
    std::string problem = examined(ranks, [&] { files = std::make_unique<CheckpointFiles>(path, needed, node.get()); });
    if (problem.empty())
      problem = examined(ranks, [&] {
        agree(ranks, *files);
        const std::string missing = files->missing(ranks.rank(), ranks.size());
        if (!missing.empty()) throw BadCheckpoint(missing);
        if (ranks.rank() == 0) check(*files);
        wanted(*files, state);
        compare_tensors(*files, state);
      });
    const LoadedState loaded = split_like(parts, state);
    std::string shared;
    if (problem.empty())
      problem = examined(ranks, [&] {
        files->read(loaded.own, stream, heartbeat);
        if (ranks.rank() == 0) shared = bytes_of_shared(*files, loaded.shared);
      });
    if (problem.empty()) {
      hand_out_shared(ranks, std::move(shared), loaded.shared, stream);
      return files;
    }
    damaged += "\n  " + problem;
    notes.push_back("checkpoint " + path + " is not usable: " + problem);
  }
  throw BadCheckpoint("no usable checkpoint:" + damaged);
}

}  // namespace

std::string no_checkpoint_hint(const std::string& path, const std::string& directory) {
  const std::string from = without_slash(path), folder = fs::path(from).parent_path().string();
  if (!directory.empty()) {
    for (const StepDirectory& step : committed_steps(directory))
      if (fs::path(step.path).filename() == from || std::to_string(step.step) == from)
        return "; did you mean " + step.path + "?";
    if (has_word("latest last newest true yes auto", from))
      return "; legal: latest, the newest of " + directory + ", or a directory";
  }
  if (!folder.empty() && is_file(from) && holds_checkpoints(folder)) return "; legal: its directory, " + folder;
  if (is_file(from) && (from.ends_with(".yaml") || from.ends_with(".yml")))
    return "; it is a deck: the directory is meant that its checkpoint.directory names";
  if (is_file(from + "/deck.yaml"))
    return "; it is a run's directory; legal: the directory of checkpoint.directory in " + from + "/deck.yaml";
  if (is_file(from + "/config.json")) return "; it is a Hugging Face directory, which model.hf of a deck names";
  return path_hint(from, PathUse::file);
}

std::vector<std::string> checkpoints_at(const std::string& path, const std::string& asked,
                                        const std::string& directory) {
  const std::string from = named_by_latest(without_slash(path));
  if (reading([&] { return fs::exists(from + "/" + manifest_name); })) return {from};
  const auto steps = committed_steps(from);
  if (steps.empty())
    throw BadCheckpoint(asked + path + ": neither a checkpoint (it has no " + manifest_name +
                        ") nor a directory of checkpoints" + no_checkpoint_hint(from, directory));
  return paths_of(steps);
}

bool holds_checkpoints(const std::string& path) {
  const std::string from = named_by_latest(without_slash(path));
  return reading([&] { return fs::exists(from + "/" + manifest_name); }) || !committed_steps(from).empty();
}

RunStart start_of_run(const RestartRequest& request, const CheckpointDeck& deck, const BatchJob& job) {
  RunStart start;
  start.model_from = deck.model_from;
  RunMarker found;
  if (!deck.directory.empty()) found = read_run_marker(deck.directory);
  const bool own = job.started_again && found.has(job.name);
  if (own) start.candidates = paths_of(committed_steps(deck.directory));
  if (!start.candidates.empty()) {
    start.notes.push_back("started again as job " + job.name + ", which goes on from its own checkpoints");
  } else {
    start.candidates = restart_candidates(request, deck);
    if (own) start.marker.model = found.model;
    if (!start.marker.model.empty()) start.model_from = deck.directory + "/" + found.model;
  }
  start.goes_on =
      !start.candidates.empty() && same_place(fs::absolute(start.candidates.front()).parent_path(), deck.directory);
  if (start.goes_on) start.marker.jobs = found.jobs;
  if (!job.name.empty() && !start.marker.has(job.name)) start.marker.jobs.push_back(job.name);
  return start;
}

std::vector<std::string> take_effect(const RunStart& start, const CheckpointDeck& deck, std::int64_t step) {
  const std::string aside = next_aside(deck.directory);
  RunMarker marker = start.marker;
  if (const std::string moved = moved_place(start.model_from, deck.directory, aside); !start.goes_on && !moved.empty())
    marker.model = moved;
  std::vector<std::string> notes;
  if (take_over(deck.directory, start.goes_on ? step : -1, aside, marker))
    notes.push_back((start.goes_on ? "later" : "earlier") + (" checkpoints moved to " + deck.directory) + "/" + aside);
  if (const std::string problem = write_job_file(deck.directory); !problem.empty()) notes.push_back(problem);
  return notes;
}

template <class T>
RunProgress restart(Session<T>& session, const Deck& deck, const std::vector<std::string>& candidates,
                    const std::string& data, std::vector<std::string>& notes) {
  const auto start = std::chrono::steady_clock::now();
  DeckChanges changes;
  bool resets = false;
  const auto files = load_first(
      session.mesh().world(), session.stream(), session_state(session, StateUse::read),
      [&](const CheckpointFiles& found, std::vector<StateTensor>& state) {
        resets = resets_optimizer(deck, found.facts().deck, found.directory());
        state = session_state(session, StateUse::read, {true, !resets});
      },
      candidates,
      [&](const CheckpointFiles& found) {
        const std::string& path = found.directory();
        changes = deck_changes(deck, found.facts().deck, path, found.facts().step);
        if (!changes.illegal.empty())
          throw BadInput("the deck has other values than the checkpoint " + path + ":\n  " + text_of(changes.illegal));
        if (data != found.facts().data)
          throw BadInput("other data: " + std::string(deck.data.sources.empty() ? "data.files" : "data.sources") +
                         " hold " + data + "; the checkpoint " + path + " was trained on " + found.facts().data +
                         ". A restart goes on in the same data; legal: those files, or a new training with "
                         "checkpoint.model_from: " +
                         path + ", and another checkpoint.directory");
      },
      notes, session.heartbeat());
  session.load([](ParameterStorage<T>& storage, Stream& stream) { storage.update_copies(stream); });
  std::array<std::int64_t, 2> bytes{static_cast<std::int64_t>(files->bytes_read()),
                                    static_cast<std::int64_t>(files->bytes_needed())};
  session.mesh().world().sum_host(bytes);
  notes.push_back("restarted from " + origin(*files) + "; " + format_bytes(static_cast<std::uint64_t>(bytes[0])) +
                  " read for the " + format_bytes(static_cast<std::uint64_t>(bytes[1])) + " that the ranks hold, in " +
                  format_seconds(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()));
  for (const std::string& change : changes.legal) notes.push_back("changed: " + change);
  std::error_code unknown;
  if (const auto time = std::filesystem::last_write_time(files->directory(), unknown); !unknown)
    for (const std::string& file : younger_files(deck.data, time))
      notes.push_back(file + " was written after the checkpoint: 64 samples of each source were compared, no more");
  const CheckpointFacts& facts = files->facts();
  if (resets) notes.push_back("the optimizer's state begins anew (checkpoint.reset_optimizer)");
  return {facts.step, resets ? 0 : facts.updates, resets ? 0 : facts.bad_in_a_row, origin(*files),
          spike_state_from(facts.spikes, files->directory())};
}

std::string load_model(Communicator& ranks, Stream& stream, const std::vector<StateTensor>& state, const Deck& deck,
                       std::vector<std::string>& notes, Heartbeat* heartbeat) {
  std::vector<std::string> candidates;
  const std::string problem = examined(ranks, [&] {
    if (ranks.rank() == 0) candidates = checkpoints_at(deck.checkpoint.model_from, "checkpoint.model_from = ");
  });
  if (!problem.empty()) throw BadCheckpoint(problem);
  const auto files = load_first(
      ranks, stream, state, [](const CheckpointFiles&, std::vector<StateTensor>&) {}, candidates,
      [&](const CheckpointFiles& found) {
        const DeckChanges changes =
            deck_changes(deck, found.facts().deck, found.directory(), found.facts().step, "model");
        if (!changes.illegal.empty())
          throw BadInput("the deck has another model than the checkpoint " + found.directory() + ":\n  " +
                         text_of(changes.illegal));
      },
      notes, heartbeat);
  return origin(*files);
}

template <class T>
std::string load_model(Session<T>& session, const Deck& deck, std::vector<std::string>& notes) {
  // Training from another run's parameters begins a history of its own.
  const StateParts parts{true, false, !session.has_gradients()};
  const std::string from = load_model(session.mesh().world(), session.stream(),
                                      session_state(session, StateUse::read, parts), deck, notes, session.heartbeat());
  session.load([](ParameterStorage<T>& storage, Stream& stream) { storage.update_copies(stream); });
  return from;
}

FORGE_INSTANTIATE_FUNCTION(restart);
FORGE_INSTANTIATE_FUNCTION(load_model);

}  // namespace forge
