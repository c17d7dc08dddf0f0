#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <list>
#include <string>
#include <vector>

#include "app/common_facts.hpp"
#include "app/line_input.hpp"
#include "app/line_rows.hpp"
#include "app/model_text.hpp"
#include "app/outputs.hpp"
#include "app/trained_model.hpp"
#include "comm/world.hpp"
#include "core/bytes.hpp"
#include "core/random.hpp"
#include "core/to_size.hpp"

// For verbs that answer each line of a file with a row (score, generate --prompts).
namespace forge {

// The first rank's lines, and the output of their rows. Reader: read(line, place) gives a Line.
template <class Line, class Reader>
struct LineFiles {
  const CommandLine& line;
  ModelText text;
  Reader reader;
  LineInput input;
  std::vector<Line> lines;  // those at hand
  std::list<OutputLock> locks;

  LineFiles(const CommandLine& options, const Deck& deck, const std::string& file)
      : line(options), text(deck, options.tokenizer, options.pattern), reader(options, text, deck), input(file) {
    read_lines();
    check_outputs(options, deck);
    locks = lock_outputs(options);
  }
  // All of them, before the first is answered.
  void read_lines() {
    lines.clear();
    for (std::size_t i = 0; i < input.lines().size(); ++i)
      lines.push_back(reader.read(input.lines()[i], input.place(i)));
  }
  // A run goes on behind an earlier run's rows where this is equal. `options`: those that change rows.
  std::string call(const Deck& deck, const std::string& options, const std::string& parameters) const {
    const std::string tokenizer = text.tokenizer() ? std::to_string(text.tokenizer()->digest()) : "bytes";
    return std::to_string(hash_of(std::to_string(input.hash()) + "\n" + options + "\n" + tokenizer + "\n" + parameters +
                                  "\n" + model_fingerprint(deck)));
  }
  // Standard output has rows alone where they go there.
  void say(const std::string& words) const {
    std::fprintf(line.output == "-" ? stderr : stdout, "%s\n", words.c_str());
  }
  void say_start(const LineRows& rows) const {
    if (rows.kept() > 0)
      say("goes on behind " + counted(rows.kept(), "row") + " of " + line.output + ".partial");
    else if (rows.replaced_others())
      say(line.output + ".partial was of another file, model or option; it begins anew");
  }
  // `cut`: lines whose `part` lost its first tokens.
  void say_end(std::int64_t cut, const char* part, const Deck& deck) const {
    if (cut > 0)
      say(counted(cut, part) + (cut == 1 ? " was" : " were") +
          " longer than train.sequence_tokens = " + std::to_string(deck.train.sequence_tokens) +
          " allows: their first tokens are left out, as left_out of their rows says");
    if (line.output != "-") say("written: " + line.output);
  }
};

// Appends a record and its tokens to an order, and reads the next from there.
template <class Record>
void append_record(std::string& order, const Record& record, const std::vector<std::int32_t>& tokens) {
  const std::int64_t count = std::ssize(tokens);
  order.append(reinterpret_cast<const char*>(&count), sizeof count);
  order.append(reinterpret_cast<const char*>(&record), sizeof record);
  order.append(reinterpret_cast<const char*>(tokens.data()), tokens.size() * sizeof(std::int32_t));
}
template <class Record>
std::vector<std::int32_t> next_record(const std::string& order, std::size_t& at, Record& record) {
  const auto take = [&](void* to, std::size_t bytes) {
    std::memcpy(to, order.data() + at, bytes);
    at += bytes;
  };
  std::int64_t count = 0;
  take(&count, sizeof count);
  take(&record, sizeof record);
  std::vector<std::int32_t> tokens(to_size(count));
  take(tokens.data(), tokens.size() * sizeof(std::int32_t));
  return tokens;
}

// Orders of the first rank to the others: work, with records behind its first character; wait for the next; end.
class LineOrders {
 public:
  LineOrders(const World& world, Communicator& ranks) : world_(world), ranks_(ranks) {}

  static std::string work() { return std::string(1, static_cast<char>(Order::work)); }
  void send(std::string order) { broadcast(std::move(order)); }
  // On another rank: work(order) for each, until the first rank ends.
  template <class Work>
  void follow(const Work& work) {
    for (Order kind = Order::wait; kind != Order::end;) {
      const std::string order = broadcast("");
      kind = static_cast<Order>(order.at(0));
      if (kind == Order::work) work(order);
    }
  }
  // On the first rank: answer(first, before) for a file's lines from `kept` on, or for each batch of standard input;
  // `before`: lines of earlier batches.
  template <class Files, class Answer>
  void lead(Files& files, std::int64_t kept, const Answer& answer) {
    if (!files.input.is_stream()) {
      answer(kept, std::int64_t{0});
      return end();
    }
    for (std::int64_t before = 0;;) {
      const LineInput::Next next = files.input.next();
      if (next == LineInput::Next::end) return end();
      if (next == LineInput::Next::nothing_yet) {
        broadcast(std::string(1, static_cast<char>(Order::wait)));
        continue;
      }
      files.read_lines();
      answer(std::int64_t{0}, before);
      before += std::ssize(files.lines);
    }
  }

 private:
  enum class Order : char { work, wait, end };
  std::string broadcast(std::string order) {
    ranks_.broadcast_host(order, 0);
    world_.watchdog().heartbeat().beat();
    return order;
  }
  void end() { broadcast(std::string(1, static_cast<char>(Order::end))); }

  const World& world_;
  Communicator& ranks_;
};

}  // namespace forge
