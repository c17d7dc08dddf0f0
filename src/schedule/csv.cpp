#include "schedule/csv.hpp"

#include <sstream>

#include "config/text.hpp"
#include "core/error.hpp"
#include "core/parse.hpp"
#include "core/to_size.hpp"
#include "schedule/validate.hpp"

namespace forge {

namespace {

constexpr long most_cells = 1L << 20;

// What was read so far, and where.
class Reader {
 public:
  explicit Reader(const std::string& source) : source_(source) {}

  void line(std::string_view text) {
    ++line_;
    auto fields = parts_of(text, ',');
    for (std::string_view& field : fields) field = trimmed(field);
    if (fields.size() == 1 && fields[0].empty()) return;
    if (fields[0].starts_with('#')) return;
    if (fields[0] == "schedule")
      head(fields);
    else if (!begun_)
      fail("the first record must be schedule,<name>,<ranks>,<chunks per rank>,<microbatches>,compute|lowered");
    else if (fields[0] == "stage")
      stage(fields);
    else if (fields[0] == "action")
      action(fields);
    else
      fail("unknown record '" + shown(fields[0]) + "'; legal are schedule, stage, action");
  }

  Schedule finish() {
    if (!begun_) throw BadInput(source_ + ": no schedule record");
    for (std::size_t s = 0; s < given_.size(); ++s)
      if (!given_[s]) throw BadInput(source_ + ": no record for stage " + std::to_string(s));
    const std::string violation = find_violation(schedule_);
    if (!violation.empty()) throw BadInput(source_ + ": schedule " + schedule_.name + ": " + violation);
    return std::move(schedule_);
  }

 private:
  [[noreturn]] void fail(const std::string& text) const {
    throw BadInput(source_ + ":" + std::to_string(line_) + ": " + text);
  }
  // A field for a message.
  static std::string shown(std::string_view field) { return printable(field, 40); }
  void expect(const std::vector<std::string_view>& fields, std::size_t least, std::size_t most) const {
    if (fields.size() < least || fields.size() > most)
      fail("a " + shown(fields[0]) + " record has " + std::to_string(least) +
           (most > least ? " or " + std::to_string(most) : "") + " fields, but " + std::to_string(fields.size()) +
           " are given");
  }
  int number(std::string_view field, const char* what, long least, long below) const {
    long value = 0;
    if (!reads_as(field, value) || value < least || value >= below)
      fail(std::string(what) + " must be a whole number from " + std::to_string(least) + " to " +
           std::to_string(below - 1) + ", but is '" + shown(field) + "'");
    return static_cast<int>(value);
  }

  void head(const std::vector<std::string_view>& fields) {
    if (begun_) fail("a second schedule record");
    expect(fields, 6, 6);
    schedule_.name = shown(fields[1]);
    if (schedule_.name.empty()) fail("the name is empty");
    schedule_.ranks = number(fields[2], "ranks", 1, most_cells);
    schedule_.chunks_per_rank = number(fields[3], "chunks per rank", 1, most_cells);
    schedule_.microbatches = number(fields[4], "microbatches", 1, most_cells);
    const long stages = static_cast<long>(schedule_.ranks) * schedule_.chunks_per_rank;
    if (stages * schedule_.microbatches > most_cells)
      fail("stages x microbatches is more than " + std::to_string(most_cells));
    if (fields[5] != "compute" && fields[5] != "lowered")
      fail("the last field must be compute or lowered, but is '" + shown(fields[5]) + "'");
    schedule_.lowered = fields[5] == "lowered";
    schedule_.places.resize(to_size(stages));
    schedule_.actions.resize(to_size(schedule_.ranks));
    given_.assign(to_size(stages), false);
    begun_ = true;
  }

  void stage(const std::vector<std::string_view>& fields) {
    expect(fields, 4, 4);
    const auto s = to_size(number(fields[1], "stage", 0, schedule_.stages()));
    if (given_[s]) fail("stage " + std::to_string(s) + " is given twice");
    given_[s] = true;
    schedule_.places[s] = {number(fields[2], "rank", 0, schedule_.ranks),
                           number(fields[3], "chunk", 0, schedule_.chunks_per_rank)};
  }

  void action(const std::vector<std::string_view>& fields) {
    expect(fields, 5, 6);
    const int rank = number(fields[1], "rank", 0, schedule_.ranks);
    Action action{operation(fields[2]), number(fields[3], "chunk", 0, schedule_.chunks_per_rank),
                  number(fields[4], "microbatch", 0, schedule_.microbatches)};
    if (fields.size() == 6) action.peer = number(fields[5], "peer", 0, schedule_.ranks);
    schedule_.actions[to_size(rank)].push_back(action);
  }

  Op operation(std::string_view field) const {
    std::string legal;
    for (int op = 0; op < op_count; ++op) {
      if (name_of(static_cast<Op>(op)) == field) return static_cast<Op>(op);
      legal += (op ? ", " : "") + std::string(name_of(static_cast<Op>(op)));
    }
    fail("unknown operation '" + shown(field) + "'; legal are " + legal);
  }

  std::string source_;
  int line_ = 0;
  bool begun_ = false;
  Schedule schedule_;
  std::vector<bool> given_;  // by stage
};

}  // namespace

std::string write_schedule_csv(const Schedule& schedule) {
  std::ostringstream out;
  out << "schedule," << schedule.name << ',' << schedule.ranks << ',' << schedule.chunks_per_rank << ','
      << schedule.microbatches << ',' << (schedule.lowered ? "lowered" : "compute") << '\n';
  for (std::size_t s = 0; s < schedule.places.size(); ++s)
    out << "stage," << s << ',' << schedule.places[s].rank << ',' << schedule.places[s].chunk << '\n';
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank)
    for (const Action& action : schedule.actions[rank]) {
      out << "action," << rank << ',' << name_of(action.op) << ',' << action.chunk << ',' << action.microbatch;
      if (action.peer >= 0) out << ',' << action.peer;
      out << '\n';
    }
  return out.str();
}

Schedule read_schedule_csv(std::string_view text, const std::string& source) {
  Reader reader(source);
  for (const std::string_view line : parts_of(text, '\n')) reader.line(line);
  return reader.finish();
}

}  // namespace forge
