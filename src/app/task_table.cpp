#include "app/show_parts.hpp"

#include <algorithm>
#include <map>

#include "core/bytes.hpp"
#include "core/to_size.hpp"
#include "plan/placement.hpp"
#include "plan/task_segments.hpp"
#include "plan/traffic.hpp"

namespace forge {

namespace {

// Of a task, or of an action with all of its tasks. Rows with the same `kind` differ in layer and microbatch alone.
struct Row {
  std::string text, kind;
};

std::string numbered(std::string_view name, std::int64_t number) {
  return std::string(name) + (number < 0 ? "" : " " + std::to_string(number));
}

// The table's words for the tasks of one rank.
class Words {
 public:
  Words(const RunSetup& setup, const RankShare& share)
      : setup_(setup), share_(share), sizes_(group_sizes(setup.spec, setup.mesh, share)) {}

  Row row(const Task& task) const {
    const std::string regions = regions_of(task), sent = sent_by(task), flops = flops_by(task), op = op_of(task);
    const std::string stream(stream_of(task));
    const auto [name, number] = subject_of(task);
    const std::string text = formatted("%-16s %-18s %-10s %9s  %-34s", op.c_str(), numbered(name, number).c_str(),
                                       stream.c_str(), flops.c_str(), regions.c_str());
    return {text + sent, op + '|' + name + '|' + flops + '|' + regions + '|' + sent};
  }

  JsonLine json(const Task& task) const {
    JsonLine line, sent;
    line.add("action", task.of_step() ? "step" : text_of(task.action)).add("task", op_of(task));
    if (const auto [name, number] = subject_of(task); !name.empty()) line.add("of", numbered(name, number));
    if (const std::string_view stream = stream_of(task); !stream.empty()) line.add("stream", stream);
    if (const double flops = flops_of_task(task); flops > 0) line.add("flops", flops);
    if (task.reads) line.add("reads", names_of(task.reads));
    if (task.writes) line.add("writes", names_of(task.writes));
    for (const auto& [group, bytes] : bytes_sent_by(task))
      if (bytes > 0) sent.add(name_of(group), bytes);
    return line.add("sent", sent);
  }

 private:
  static std::string op_of(const Task& task) {
    const std::string op(name_of(task.op));
    return task.op == TaskOp::open ? op + "_" + std::string(name_of(task.frame)) : op;
  }
  // What it works on, and its number in the model; -1: it has none.
  std::pair<std::string, std::int64_t> subject_of(const Task& task) const {
    if (task.op == TaskOp::local_copy) return {"to chunk " + std::to_string(task.buffer), -1};
    if (task.unit != no_unit) {
      const LocalUnit& unit = share_.units[task.unit];
      return {std::string(name_of(unit.kind)), unit.layer};
    }
    if (task.layer < 0) return {"", -1};
    const StageLayer& layer = share_.layers[to_size(task.action.chunk)][to_size(task.layer)];
    const std::string name(name_of(layer.kind));
    if (layer.number >= 0 || layer.state == 0) return {name, layer.number};
    return {name + " of depth " + std::to_string(layer.state), -1};
  }

  static std::string names_of(Regions regions) {
    std::string names;
    for (int r = 0; r < region_count; ++r)
      if (const auto region = static_cast<Region>(r); regions & set_of(region))
        names += (names.empty() ? "" : " ") + std::string(name_of(region));
    return names;
  }
  static std::string regions_of(const Task& task) {
    if (!task.writes) return names_of(task.reads);
    return names_of(task.reads) + (task.reads ? " > " : "> ") + names_of(task.writes);
  }

  std::string flops_by(const Task& task) const {
    const double flops = flops_of_task(task);
    return flops > 0 ? format_flops(flops) : "";
  }
  double flops_of_task(const Task& task) const { return segments_of(setup_.buffers, share_, task).flops(); }
  std::map<Group, std::int64_t> bytes_sent_by(const Task& task) const {
    std::map<Group, std::int64_t> bytes;
    for (const Sent& sent : sends_of(setup_.buffers, share_, task)) bytes[sent.group] += bytes_of(sent, sizes_);
    return bytes;
  }
  std::string sent_by(const Task& task) const {
    std::string text;
    for (const auto& [group, sum] : bytes_sent_by(task))
      if (sum > 0) text += (text.empty() ? " " : ", ") + std::string(name_of(group)) + " " + format_bytes(to_size(sum));
    return text;
  }

  const RunSetup& setup_;
  const RankShare& share_;
  GroupSizes sizes_;
};

// `times` times in a row, `length` rows from `begin`.
struct Repeat {
  std::size_t begin, length, times;
};

// Rows in order, what repeats once: from each row on the repetition that covers most.
std::vector<Repeat> repeats_of(const std::vector<Row>& rows) {
  std::map<std::string, int> numbers;
  std::vector<int> ids;
  for (const Row& row : rows) ids.push_back(numbers.emplace(row.kind, static_cast<int>(numbers.size())).first->second);
  std::vector<Repeat> repeats;
  for (std::size_t i = 0; i < ids.size(); i += repeats.back().length * repeats.back().times) {
    Repeat best{i, 1, 1};
    for (std::size_t length = 1; i + 2 * length <= ids.size(); ++length) {
      const auto begin = ids.begin() + static_cast<std::ptrdiff_t>(i);
      const auto mismatch = std::mismatch(begin + static_cast<std::ptrdiff_t>(length), ids.end(), begin);
      const auto equal = to_size(mismatch.second - begin);  // rows that stand again, one period on
      const std::size_t times = 1 + equal / length;
      if (times > 1 && times * length > best.times * best.length) best = {i, length, times};
    }
    repeats.push_back(best);
  }
  return repeats;
}

std::string times_text(const Repeat& repeat, std::size_t row) {
  if (repeat.times == 1) return "        ";
  return row > 0 ? "      | " : formatted("%4zux | ", repeat.times);
}

// An action's tasks, behind its name.
Row action_row(std::string name, const std::string& kind, const std::vector<Row>& tasks) {
  Row all{"", kind};
  const auto repeats = repeats_of(tasks);
  for (const Repeat& repeat : repeats)
    for (std::size_t i = 0; i < repeat.length; ++i) {
      all.text += formatted("%-32s", name.c_str()) + times_text(repeat, i) + tasks[repeat.begin + i].text + "\n";
      all.kind += '\n' + std::to_string(repeat.times) + ' ' + tasks[repeat.begin + i].kind;
      name.clear();
    }
  return all;
}

std::vector<Task> tasks_of(const RunSetup& setup, const RankShare& share) {
  std::vector<Task> tasks = step_tasks(share, setup.schedule, setup.buffers.recompute);
  const std::vector<Task> update = update_tasks(share, setup.spec.options.router_bias);
  tasks.insert(tasks.end(), update.begin(), update.end());
  return tasks;
}

}  // namespace

std::vector<JsonLine> tasks_json(const RunSetup& setup, int rank) {
  const RankShare share = rank_share(setup.model_share(), rank);
  const Words words(setup, share);
  std::vector<JsonLine> list;
  for (const Task& task : tasks_of(setup, share)) list.push_back(words.json(task));
  return list;
}

std::string task_table(const RunSetup& setup, int rank) {
  const RankShare share = rank_share(setup.model_share(), rank);
  const std::vector<Task> tasks = tasks_of(setup, share);
  const Words words(setup, share);
  std::vector<Row> actions;
  for (std::size_t begin = 0, end = 0; begin < tasks.size(); begin = end) {
    std::vector<Row> rows;
    const Task& first = tasks[begin];
    for (; end < tasks.size() && tasks[end].action == first.action && tasks[end].of_step() == first.of_step(); ++end)
      rows.push_back(words.row(tasks[end]));
    const Action& a = first.action;
    const bool of_step = first.of_step();
    actions.push_back(
        action_row(of_step ? "step" : text_of(a), of_step ? "step" : text_of({a.op, a.chunk, 0, a.peer}), rows));
  }
  std::string table = "rank " + std::to_string(rank) + " in a step: " + std::to_string(tasks.size()) +
                      " tasks; those that repeat in other layers and microbatches stand here once\n";
  table += formatted("%8s%-40s%-16s %-18s %-10s %9s  %-34s sends\n", "", "action", "task", "of", "stream", "FLOP",
                     "reads > writes");
  for (const Repeat& repeat : repeats_of(actions))
    for (std::size_t i = 0; i < repeat.length; ++i) {
      const std::string& text = actions[repeat.begin + i].text;
      for (std::size_t at = 0, next; at < text.size(); at = next) {
        next = text.find('\n', at) + 1;
        std::string line = times_text(repeat, i + at) + text.substr(at, next - 1 - at);
        table += line.erase(line.find_last_not_of(' ') + 1) + "\n";
      }
    }
  return table;
}

}  // namespace forge
