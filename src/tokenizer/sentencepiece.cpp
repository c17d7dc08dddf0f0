#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include "config/text.hpp"
#include "core/error.hpp"
#include "core/to_size.hpp"
#include "tokenizer/bpe.hpp"
#include "tokenizer/readers.hpp"
#include "tokenizer/sentencepiece_normalizer.hpp"
#include "tokenizer/unicode.hpp"
#include "tokenizer/unigram.hpp"

namespace forge {

namespace {

// The fields of an untrusted message in protobuf's wire format, one after the other. Texts are views of the input;
// nothing is read outside of it.
class ProtobufReader {
 public:
  ProtobufReader(std::string_view bytes, const std::string& name) : rest_(bytes), name_(name) {}

  struct Field {
    std::uint32_t number = 0;
    std::uint32_t wire = 0;  // 0: value; 1, 5: value, its 8 or 4 bytes; 2: bytes
    std::uint64_t value = 0;
    std::string_view bytes;
  };
  // False at the end. BadInput: cut, or no such format.
  bool next(Field& field) {
    if (rest_.empty()) return false;
    const std::uint64_t key = varint();
    field = {static_cast<std::uint32_t>(key >> 3), static_cast<std::uint32_t>(key & 7), 0, {}};
    if (field.number == 0 || key >> 32 != 0) fail("has no field number");
    if (field.wire == 0)
      field.value = varint();
    else if (field.wire == 1)
      std::memcpy(&field.value, take(8).data(), 8);
    else if (field.wire == 5)
      std::memcpy(&field.value, take(4).data(), 4);
    else if (field.wire == 2)
      field.bytes = take(varint());
    else
      fail("has a field of wire type " + std::to_string(field.wire));
    return true;
  }
  static float as_float(const Field& field) {
    const auto bits = static_cast<std::uint32_t>(field.value);
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw BadInput(name_ + ": no SentencePiece model: its message " + what);
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<std::uint8_t>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    fail("has a number of more than 64 bits");
  }
  std::string_view take(std::uint64_t count) {
    if (count > rest_.size()) fail("ends before its fields do");
    const std::string_view taken = rest_.substr(0, static_cast<std::size_t>(count));
    rest_.remove_prefix(static_cast<std::size_t>(count));
    return taken;
  }
  std::string_view rest_;
  const std::string& name_;
};

// sentencepiece_model.proto.
enum class PieceType { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
enum class ModelType { unigram = 1, bpe = 2, word = 3, character = 4 };

struct Piece {
  std::string text;
  float score = 0;
  PieceType type = PieceType::normal;
};
struct Spec {
  std::vector<Piece> pieces;
  ModelType model = ModelType::unigram;
  bool byte_fallback = false, space_as_suffix = false;
  bool dummy_prefix = true, remove_extra_spaces = true, escape_spaces = true;
  std::string charsmap;
  std::int64_t end_id = 2;
  std::int64_t unknown_id = 0, begin_id = 1;
  std::string unknown_piece = "<unk>", begin_piece = "<s>", end_piece = "</s>", unknown_surface = " \xE2\x81\x87 ";
};

Piece read_piece(std::string_view bytes, const std::string& name, std::size_t number) {
  Piece piece;
  ProtobufReader reader(bytes, name);
  for (ProtobufReader::Field field; reader.next(field);) {
    if (field.number == 1 && field.wire == 2) piece.text = field.bytes;
    if (field.number == 2 && field.wire == 5) piece.score = ProtobufReader::as_float(field);
    if (field.number == 3 && field.wire == 0) {
      if (field.value < 1 || field.value > 6)
        throw BadInput(name + ": piece " + std::to_string(number) + " has type " + std::to_string(field.value) +
                       "; legal: 1 to 6");
      piece.type = static_cast<PieceType>(field.value);
    }
  }
  if (piece.text.empty() || !is_valid_utf8(piece.text))
    throw BadInput(name + ": piece " + std::to_string(number) + " = " + shown(piece.text) +
                   "; legal: UTF-8, not empty");
  if (!(piece.score > -1e30f && piece.score < 1e30f))
    throw BadInput(name + ": the score of piece " + std::to_string(number) + " is no number");
  return piece;
}

void read_trainer(std::string_view bytes, const std::string& name, Spec& spec) {
  ProtobufReader reader(bytes, name);
  for (ProtobufReader::Field field; reader.next(field);) {
    if (field.wire == 0) {
      if (field.number == 3) spec.model = static_cast<ModelType>(field.value > 4 ? 0 : field.value);
      if (field.number == 24) spec.space_as_suffix = field.value != 0;
      if (field.number == 35) spec.byte_fallback = field.value != 0;
      if (field.number == 40) spec.unknown_id = static_cast<std::int32_t>(field.value);
      if (field.number == 41) spec.begin_id = static_cast<std::int32_t>(field.value);
      if (field.number == 42) spec.end_id = static_cast<std::int32_t>(field.value);
    } else if (field.wire == 2) {
      if (field.number == 44) spec.unknown_surface = field.bytes;
      if (field.number == 45) spec.unknown_piece = field.bytes;
      if (field.number == 46) spec.begin_piece = field.bytes;
      if (field.number == 47) spec.end_piece = field.bytes;
    }
  }
}

void read_normalizer(std::string_view bytes, const std::string& name, Spec& spec) {
  ProtobufReader reader(bytes, name);
  for (ProtobufReader::Field field; reader.next(field);) {
    if (field.number == 2 && field.wire == 2) spec.charsmap = field.bytes;
    if (field.wire != 0) continue;
    if (field.number == 3) spec.dummy_prefix = field.value != 0;
    if (field.number == 4) spec.remove_extra_spaces = field.value != 0;
    if (field.number == 5) spec.escape_spaces = field.value != 0;
  }
}

Spec read_spec(std::string_view bytes, const std::string& name) {
  Spec spec;
  ProtobufReader reader(bytes, name);
  for (ProtobufReader::Field field; reader.next(field);) {
    if (field.wire != 2) continue;
    if (field.number == 1) spec.pieces.push_back(read_piece(field.bytes, name, spec.pieces.size()));
    if (field.number == 2) read_trainer(field.bytes, name, spec);
    if (field.number == 3) read_normalizer(field.bytes, name, spec);
  }
  if (spec.pieces.empty()) throw BadInput(name + ": no SentencePiece model: it has no pieces");
  if (static_cast<std::int64_t>(spec.pieces.size()) > most_token_ids)
    throw BadInput(name + ": has " + std::to_string(spec.pieces.size()) + " pieces; legal: at most " +
                   std::to_string(most_token_ids));
  return spec;
}

struct Lookup {
  std::array<std::int32_t, 256> byte_tokens;
  std::int32_t unknown = -1;
};

// What the library itself refuses is refused here too.
Lookup check_pieces(const Spec& spec, const std::string& name) {
  Lookup lookup;
  lookup.byte_tokens.fill(-1);
  std::set<std::string_view> normal, reserved;
  for (std::size_t id = 0; id < spec.pieces.size(); ++id) {
    const Piece& piece = spec.pieces[id];
    const bool is_normal =
        piece.type == PieceType::normal || piece.type == PieceType::user_defined || piece.type == PieceType::unused;
    if (!(is_normal ? normal : reserved).insert(piece.text).second)
      throw BadInput(name + ": the piece " + shown(piece.text) + " is there twice");
    if (piece.type == PieceType::unknown) {
      if (lookup.unknown >= 0) throw BadInput(name + ": has two unknown pieces; legal: one");
      lookup.unknown = static_cast<std::int32_t>(id);
    }
    if (piece.type != PieceType::byte) continue;
    const int byte = byte_of_token(piece.text);
    if (byte < 0 || !spec.byte_fallback)
      throw BadInput(name + ": the byte piece " + shown(piece.text) +
                     (byte < 0 ? " is no byte; legal: <0x00> to <0xFF>" : " without byte_fallback"));
    lookup.byte_tokens[to_size(byte)] = static_cast<std::int32_t>(id);
  }
  if (lookup.unknown < 0) throw BadInput(name + ": has no unknown piece; legal: one");
  if (spec.byte_fallback && std::count(lookup.byte_tokens.begin(), lookup.byte_tokens.end(), -1) > 0)
    throw BadInput(name + ": byte_fallback without 256 byte pieces");
  return lookup;
}

Normalizer make_normalizer(const Spec& spec, const std::string& name) {
  SentencePieceRules rules{spec.charsmap,     {}, spec.dummy_prefix, spec.space_as_suffix, spec.remove_extra_spaces,
                           spec.escape_spaces};
  for (const Piece& piece : spec.pieces)
    if (piece.type == PieceType::user_defined) rules.symbols.push_back(piece.text);
  return make_sentencepiece_normalizer(rules, name + ": precompiled_charsmap");
}

std::unique_ptr<TokenModel> make_bpe(const Spec& spec, const Lookup& lookup, const std::string& name) {
  TokenTable table;
  std::vector<std::string> frozen;
  std::vector<float> scores;
  for (std::size_t id = 0; id < spec.pieces.size(); ++id) {
    const Piece& piece = spec.pieces[id];
    if (piece.type == PieceType::unused)
      throw BadInput(name + ": piece " + std::to_string(id) +
                     " of a BPE model is unused; legal: models with all of their pieces");
    if (piece.type == PieceType::user_defined) frozen.push_back(piece.text);
    if (piece.type != PieceType::normal && piece.type != PieceType::user_defined) continue;
    table.add(piece.text, static_cast<std::int32_t>(id));
    scores.push_back(piece.score);
  }
  // Equal scores are one rank: ties go to the left.
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<std::int64_t> ranks(spec.pieces.size(), -1);
  for (const auto& [text, id] : table)
    ranks[to_size(id)] =
        std::lower_bound(scores.begin(), scores.end(), spec.pieces[to_size(id)].score, std::greater<>()) -
        scores.begin();
  BpeOptions options;
  options.byte_fallback = spec.byte_fallback;
  options.fuse_unknown = true;
  options.unknown = lookup.unknown;
  options.first_virtual = static_cast<std::int32_t>(spec.pieces.size());
  const auto merges = Bpe::merges_of_ranks(table, ranks, false, options.first_virtual);
  return std::make_unique<Bpe>(std::move(table), merges, lookup.byte_tokens, options, frozen);
}

std::unique_ptr<TokenModel> make_unigram(const Spec& spec, const Lookup& lookup) {
  UnigramOptions options;
  options.sentencepiece = true;
  options.unknown = lookup.unknown;
  options.byte_fallback = spec.byte_fallback;
  options.byte_tokens = lookup.byte_tokens;
  float least = std::numeric_limits<float>::max();
  std::vector<UnigramPiece> pieces;
  for (const Piece& piece : spec.pieces) {
    if (piece.type == PieceType::normal) least = std::min(least, piece.score);
    const bool matches = piece.type == PieceType::normal || piece.type == PieceType::user_defined;
    pieces.push_back({piece.text, piece.score, piece.type == PieceType::user_defined, matches});
  }
  options.least_score = least;
  return std::make_unique<Unigram>(std::move(pieces), options);
}

}  // namespace

TokenizerParts read_sentencepiece(std::string_view bytes, const std::string& name, const SentencePieceUse& use) {
  Spec spec = read_spec(bytes, name);
  const bool prefixes = spec.dummy_prefix;
  const Lookup lookup = check_pieces(spec, name);
  TokenizerParts parts;
  parts.name = name;
  if (use.prefix) spec.dummy_prefix = false;
  if (use.normalizes) parts.normalizers.push_back(make_normalizer(spec, name));
  if (use.prefix && (prefixes || !use.normalizes))
    parts.pre_tokenizers.push_back(make_metaspace("\xE2\x96\x81", *use.prefix, false));
  spec.dummy_prefix = prefixes;
  parts.prefixed_parts = use.normalizes && prefixes;
  if (spec.model == ModelType::bpe)
    parts.model = make_bpe(spec, lookup, name);
  else if (spec.model == ModelType::unigram)
    parts.model = make_unigram(spec, lookup);
  else
    throw BadInput(name + ": model_type = " + std::to_string(static_cast<int>(spec.model)) +
                   "; legal: 1 (unigram) | 2 (BPE)");
  for (std::size_t id = 0; id < spec.pieces.size(); ++id) {
    const Piece& piece = spec.pieces[id];
    parts.texts.push_back(piece.type == PieceType::unknown ? spec.unknown_surface : piece.text);
    parts.special.push_back(piece.type == PieceType::control);
    parts.ids.emplace(piece.text, static_cast<std::int32_t>(id));
    // transformers' own normalizer leaves user-defined pieces to the model.
    if (piece.type == PieceType::control || (piece.type == PieceType::user_defined && !use.normalizes)) {
      AddedToken token;
      token.text = piece.text;
      token.special = piece.type == PieceType::control;
      parts.own_further.push_back(std::move(token));
    }
  }
  parts.model_tokens = static_cast<std::int64_t>(spec.pieces.size());
  if (spec.begin_id >= 0) parts.own_specials.emplace_back("bos_token", spec.begin_piece);
  if (spec.end_id >= 0) parts.own_specials.emplace_back("eos_token", spec.end_piece);
  if (spec.unknown_id >= 0) parts.own_specials.emplace_back("unk_token", spec.unknown_piece);
  if (spec.begin_id >= 0) parts.document_begin = spec.begin_piece;
  if (spec.end_id >= 0) parts.document_end = spec.end_piece;
  parts.decoders.push_back(make_sentencepiece_decoder(
      spec.unknown_surface, spec.dummy_prefix || spec.remove_extra_spaces, spec.remove_extra_spaces));
  return parts;
}

}  // namespace forge
