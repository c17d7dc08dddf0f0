#include "train/spikes.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "checkpoint/manifest.hpp"
#include "core/bytes.hpp"
#include "core/median.hpp"
#include "core/parse.hpp"

namespace forge {

namespace {

std::string hexadecimal(double value) {
  char text[64];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value, std::chars_format::hex);
  return {text, end};
}

bool reads_hexadecimal(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::hex);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value);
}

// Of the line's words; whether it is legal behind the lines before.
bool read_line(const std::vector<std::string_view>& words, SpikeState& state) {
  if (words.size() == 2 && words[0] == "acts") return reads_as(words[1], state.acts) && state.acts >= 0;
  if (words.size() != 3) return false;
  if (words[0] == "excluded") {
    NumberRange& range = state.excluded.emplace_back();
    const std::int64_t before = state.excluded.size() > 1 ? state.excluded.end()[-2].last + 1 : -1;
    return reads_as(words[1], range.first) && reads_as(words[2], range.last) && range.first > before &&
           range.first <= range.last;
  }
  return words[0] == "step" && reads_hexadecimal(words[1], state.losses.emplace_back()) &&
         reads_hexadecimal(words[2], state.norms.emplace_back());
}

void keep_last(std::vector<double>& values, std::size_t most) {
  if (values.size() > most) values.erase(values.begin(), values.end() - static_cast<std::ptrdiff_t>(most));
}

}  // namespace

std::string to_text(const SpikeState& state) {
  std::string text;
  if (state.acts > 0) text += "acts " + std::to_string(state.acts) + "\n";
  for (const NumberRange& out : state.excluded)
    text += "excluded " + std::to_string(out.first) + " " + std::to_string(out.last) + "\n";
  for (std::size_t i = 0; i < state.losses.size(); ++i)
    text += "step " + hexadecimal(state.losses[i]) + " " + hexadecimal(state.norms[i]) + "\n";
  return text;
}

SpikeState spike_state_from(const std::string& text, const std::string& where) {
  SpikeState state;
  std::int64_t number = 0;
  for (const std::string_view line : parts_of(text, '\n')) {
    ++number;
    if (!line.empty() && !read_line(parts_of(line, ' '), state))
      throw BadCheckpoint(where + ": /run/spikes, line " + std::to_string(number) +
                          " is neither 'acts N' nor 'excluded FIRST LAST', ascending, nor 'step LOSS NORM'");
  }
  return state;
}

void add_places(std::vector<NumberRange>& excluded, const std::vector<NumberRange>& more) {
  excluded.insert(excluded.end(), more.begin(), more.end());
  std::ranges::sort(excluded, {}, &NumberRange::first);
  std::vector<NumberRange> joined;
  for (const NumberRange& range : excluded)
    if (!joined.empty() && range.first <= joined.back().last + 1)
      joined.back().last = std::max(joined.back().last, range.last);
    else
      joined.push_back(range);
  excluded = std::move(joined);
}

SpikeWatch::SpikeWatch(const TrainDeck& deck, SpikeState state) : deck_(deck), state_(std::move(state)) {
  keep_last(state_.losses, window());
  keep_last(state_.norms, window());
}

std::string SpikeWatch::spike_in(double loss, double norm) const {
  if (!watches() || state_.losses.size() < window()) return "";
  const auto over = [&](const char* name, double value, double factor, const std::vector<double>& values) {
    const double middle = median(values);
    if (factor == 0 || !(value > factor * middle)) return std::string();
    return formatted("%s %.4g is %.2f times the median of %zu steps", name, value, value / middle, values.size());
  };
  const std::string by_loss = over("loss", loss, deck_.spike_loss, state_.losses);
  return by_loss.empty() ? over("gradient norm", norm, deck_.spike_norm, state_.norms) : by_loss;
}

void SpikeWatch::add(double loss, double norm) {
  if (!watches()) return;
  state_.losses.push_back(loss);
  state_.norms.push_back(norm);
  keep_last(state_.losses, window());
  keep_last(state_.norms, window());
}

void SpikeWatch::go_back(const SpikeState& found, const std::vector<NumberRange>& places) {
  std::vector<NumberRange> excluded = std::move(state_.excluded);
  const std::int64_t acts = state_.acts;
  *this = SpikeWatch(deck_, found);
  add_places(excluded, state_.excluded);
  add_places(excluded, places);
  state_.excluded = std::move(excluded);
  state_.acts = acts;
}

}  // namespace forge
