#include "layout/split.hpp"

#include <algorithm>
#include <charconv>

#include "config/text.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"

namespace forge {

namespace {

// Layer by layer to the stage with the least so far: `loads` is what the stages hold besides layers.
std::vector<StageContent> spread(int layers, std::vector<int> loads, int mtp_layers) {
  std::vector<StageContent> stages(loads.size());
  for (int layer = 0; layer < layers; ++layer) {
    const auto least = std::min_element(loads.begin(), loads.end()) - loads.begin();
    ++loads[to_size(least)];
    ++stages[to_size(least)].layers;
  }
  int first = 0;
  for (StageContent& stage : stages) {
    stage.first_layer = first;
    first += stage.layers;
  }
  stages.front().embedding = true;
  stages.back().mtp_layers = mtp_layers;
  stages.back().head = true;
  return stages;
}

// One letter of the written-out layout, and where it stands in the string.
struct Item {
  char letter;
  std::size_t position;
};

// Reads "Et*3|(tt|)*29m|L".
class LayoutReader {
 public:
  LayoutReader(const std::string& text, int layers, int stages, int mtp_layers)
      : text_(text), layers_(layers), stages_(stages), mtp_layers_(mtp_layers) {}

  std::vector<StageContent> read() {
    std::vector<Item> items;
    parse(items, 0);
    if (next_ < text_.size()) fail(next_, "')' without '('");
    return contents(items);
  }

 private:
  static constexpr std::size_t most_items = 1 << 16;
  static constexpr int most_depth = 8;

  [[noreturn]] void fail(std::size_t position, const std::string& rule) const {
    throw BadInput("schedule.split " + shown(text_) + ", position " + std::to_string(position + 1) + ": " + rule);
  }

  // Appends items until the end or a ')'.
  void parse(std::vector<Item>& items, int depth) {
    while (next_ < text_.size() && text_[next_] != ')') {
      const std::size_t position = next_;
      const char c = text_[next_++];
      if (c == ' ' || c == ',') continue;
      std::vector<Item> unit;
      if (c == '(') {
        if (depth == most_depth) fail(position, "parentheses are nested too deeply");
        parse(unit, depth + 1);
        if (next_ == text_.size()) fail(position, "'(' without ')'");
        ++next_;
      } else if (c == 'E' || c == 't' || c == 'm' || c == 'L' || c == '|') {
        unit.push_back({c, position});
      } else {
        fail(position, "legal are even, balanced, or a layout of E t m L | ( ) * and numbers");
      }
      const int times = repetitions();
      if (unit.size() * to_size(times) + items.size() > most_items)
        fail(position, "the layout is longer than any model");
      for (int i = 0; i < times; ++i) items.insert(items.end(), unit.begin(), unit.end());
    }
  }

  // The number behind a '*', else 1.
  int repetitions() {
    if (next_ == text_.size() || text_[next_] != '*') return 1;
    const char* begin = text_.data() + next_ + 1;
    int times = 0;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), times);
    if (error != std::errc() || times < 0 || times > static_cast<int>(most_items))
      fail(next_, "a whole number from 0 to " + std::to_string(most_items) + " must follow '*'");
    next_ = to_size(end - text_.data());
    return times;
  }

  std::vector<StageContent> contents(const std::vector<Item>& items) const {
    std::vector<StageContent> stages(1);
    int layers = 0, mtp = 0;
    const Item* last = nullptr;  // the latest letter that is not '|'
    for (const Item& item : items) {
      StageContent& stage = stages.back();
      if (item.letter == '|') {
        if (static_cast<int>(stages.size()) == stages_)
          fail(item.position, "stage " + std::to_string(stages_ + 1) + " begins, but mesh.pp x chunks is " +
                                  std::to_string(stages_) + " stages");
        stages.push_back({.first_layer = layers, .states_in = 1 + mtp});
        continue;
      }
      if (last && last->letter == 'L') fail(item.position, "nothing may follow the head L");
      if (item.letter == 'E') {
        if (last || stages.size() > 1) fail(item.position, "the embedding E must be the first letter");
        stage.embedding = true;
      } else if (item.letter == 't') {
        if (mtp > 0) fail(item.position, "a layer t behind a multi-token layer m");
        if (++layers > layers_)
          fail(item.position,
               "this is layer " + std::to_string(layers) + ", but the model has " + std::to_string(layers_));
        ++stage.layers;
      } else if (item.letter == 'm') {
        if (++mtp > mtp_layers_)
          fail(item.position, "this is multi-token layer " + std::to_string(mtp) + ", but the model has " +
                                  std::to_string(mtp_layers_));
        ++stage.mtp_layers;
      } else {
        stage.head = true;
      }
      if (item.letter != 'E' && !stages.front().embedding)
        fail(item.position, "the embedding E must be the first letter");
      last = &item;
    }
    check_totals(stages, layers, mtp);
    return stages;
  }

  void check_totals(const std::vector<StageContent>& stages, int layers, int mtp) const {
    const std::size_t end = text_.size();
    const auto expect = [&](int count, int wanted, const char* what) {
      if (count != wanted)
        fail(end, "the layout ends with " + std::to_string(count) + " " + what + ", but there must be " +
                      std::to_string(wanted));
    };
    expect(static_cast<int>(stages.size()), stages_, "stages (mesh.pp x chunks)");
    expect(layers, layers_, "layers t (model.layers)");
    expect(mtp, mtp_layers_, "multi-token layers m");
    if (!stages.back().head) fail(end, "the last stage must end with the head L");
  }

  const std::string& text_;
  int layers_, stages_, mtp_layers_;
  std::size_t next_ = 0;
};

}  // namespace

std::vector<StageContent> split_layers(const std::string& split, int layers, int stages, int mtp_layers) {
  require(layers >= 0 && stages >= 1 && mtp_layers >= 0, "split: layers and stages must be counted");
  std::vector<int> loads(to_size(stages), 0);
  if (split == "even") return spread(layers, loads, mtp_layers);
  if (split == "balanced") {
    loads.front() += 1;
    loads.back() += 1 + mtp_layers;
    return spread(layers, loads, mtp_layers);
  }
  return LayoutReader(split, layers, stages, mtp_layers).read();
}

}  // namespace forge
