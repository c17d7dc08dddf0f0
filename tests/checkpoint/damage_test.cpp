#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "../long_run.hpp"
#include "sample.hpp"

namespace forge::test {
namespace {

// How often, by a variable of the environment for longer runs.
std::uint64_t count(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// Numbers that only depend on the trial.
class Draw {
 public:
  Draw(std::uint64_t key, std::uint64_t trial) : key_(mix(key, trial)) {}
  // 0 … below − 1
  std::uint64_t operator()(std::uint64_t below) { return mix(key_, next_++) % below; }

 private:
  std::uint64_t key_, next_ = 0;
};

class Damage : public testing::Test {
 protected:
  static constexpr int ranks = 3;
  static constexpr std::uint64_t same_cut = 1, other_cut = 77;
  Damage() {
    for (const auto& entry : fs::directory_iterator(path)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) originals.push_back(text_of(path / name));
  }

  // Whether a reader finds other bytes than the original ones under any of the names.
  bool changed() const {
    for (std::size_t f = 0; f < names.size(); ++f) {
      std::error_code error;
      const fs::path file = path / names[f];
      if (!fs::is_regular_file(file, error) || fs::file_size(file) != originals[f].size() ||
          text_of(file) != originals[f])
        return true;
    }
    return false;
  }

  // Verification finds a change and nothing else; whoever reads, on the layout that wrote it or on others, has every
  // value right or refuses. Each message names the checkpoint.
  void expect_nothing_silent(const std::string& what) {
    const bool damaged = changed();
    const auto findings = verify_checkpoint(path, 1);
    EXPECT_EQ(!findings.empty(), damaged) << what << (findings.empty() ? "" : ": " + findings.front());
    for (const std::string& finding : findings)
      EXPECT_NE(finding.find(path.string()), std::string::npos) << what << ": " << finding;
    bool refused = false;
    for (const auto& [readers, key] : {std::pair{1, same_cut}, {ranks, same_cut}, {4, other_cut}}) {
      try {
        CheckpointFiles files(path);
        EXPECT_EQ(files.facts().step, 1) << what;
        EXPECT_TRUE(reads_back(files, readers, key)) << what << ": wrong values for " << readers << " ranks";
      } catch (const BadCheckpoint& error) {
        refused = true;
        EXPECT_TRUE(damaged) << what << ": " << error.what();
        EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << what << ": " << error.what();
      } catch (const std::exception& error) {
        ADD_FAILURE() << what << ": another error: " << error.what();
      }
    }
    (damaged ? refused ? refused_ : read_ : unchanged_) += 1;
  }

  // Every name again as it was written.
  void restore() {
    for (const auto& entry : fs::directory_iterator(path)) fs::remove_all(entry.path());
    for (std::size_t f = 0; f < names.size(); ++f) put(path / names[f], originals[f]);
  }

  void report(std::uint64_t trials) {
    EXPECT_EQ(static_cast<std::uint64_t>(refused_ + read_ + unchanged_), trials);
    EXPECT_FALSE(changed());
    EXPECT_TRUE(verify_checkpoint(path, 2).empty());
    std::printf("%d damaged and refused, %d damaged where no tensor is, %d without a change of content\n", refused_,
                read_, unchanged_);
  }

  Scratch scratch;
  fs::path path = write_sample(scratch.path, 1, ranks, {64}, same_cut);
  std::vector<std::string> names, originals;
  int refused_ = 0, read_ = 0, unchanged_ = 0;
};

// A single bit anywhere in any file.
TEST_F(Damage, EveryFlippedBitIsFound) {
  ASSERT_EQ(names.size(), 5u);
  std::uint64_t bytes = 0;
  for (const std::string& text : originals) bytes += text.size();
  const std::uint64_t flips = count("FORGE_DAMAGE_FLIPS", long_run() ? 5000 : 300);
  for (std::uint64_t flip = 0; flip < flips; ++flip) {
    Draw draw(5, flip);
    // Half of them in a file of drawn number: small files would hardly be hit.
    std::uint64_t at = draw(bytes);
    std::size_t f = 0;
    if (flip % 2 == 0) {
      f = draw(names.size());
      at %= originals[f].size();
    } else {
      while (at >= originals[f].size()) at -= originals[f++].size();
    }
    std::string damaged = originals[f];
    const auto bit = draw(8);
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
    put(path / names[f], damaged);
    expect_nothing_silent(names[f] + " byte " + std::to_string(at) + " bit " + std::to_string(bit));
    put(path / names[f], originals[f]);
  }
  report(flips);
}

// What goes wrong with whole files: cut, swapped, renamed, linked, or taken from other checkpoints.
class Mixtures : public Damage {
 protected:
  // Of the same step and layout with other values, of another step, of another layout.
  std::vector<fs::path> others = {write_sample(scratch.path / "a", 1, ranks, {64}, same_cut, 9),
                                  write_sample(scratch.path / "b", 2, ranks, {64}, same_cut, 10),
                                  write_sample(scratch.path / "c", 1, 5, {64}, other_cut)};
  Manifest manifest = read_manifest(path / manifest_name);

  bool is_shard(std::size_t f) const { return names[f].rfind("shard", 0) == 0; }
  std::size_t shard(Draw& draw) const {
    for (;;)
      if (const std::size_t f = draw(names.size()); is_shard(f)) return f;
  }
  std::string foreign(Draw& draw, std::size_t f) const { return text_of(others[draw(others.size())] / names[f]); }
  // A chunk of a shard's file, by the manifest.
  StoredChunk chunk(Draw& draw, std::size_t f) const {
    for (;;) {
      const StoredDataset& d = manifest.datasets[draw(manifest.datasets.size())];
      if (shard_name(manifest.shards[static_cast<std::size_t>(d.shard)].number) == names[f])
        return d.chunks[draw(d.chunks.size())];
    }
  }

  using Kind = std::string (Mixtures::*)(Draw&);
  static const std::vector<Kind>& kinds();

  std::string cut_short(Draw& draw) {
    const std::size_t f = draw(names.size());
    put(path / names[f], originals[f].substr(0, draw(4) == 0 ? 0 : draw(originals[f].size())));
    return names[f] + " cut short";
  }
  std::string lengthened(Draw& draw) {
    const std::size_t f = draw(names.size());
    put(path / names[f], originals[f] + std::string(1 + draw(5000), static_cast<char>(draw(256))));
    return names[f] + " lengthened";
  }
  std::string removed(Draw& draw) {
    const std::size_t f = draw(names.size());
    fs::remove(path / names[f]);
    return names[f] + " removed";
  }
  // Some files of another checkpoint, and at times all of them: that is another checkpoint under this one's name.
  std::string mixed(Draw& draw) {
    const std::size_t o = draw(others.size()), all = (std::size_t{1} << names.size()) - 1;
    const std::size_t chosen = 1 + draw(o == 1 ? all : all - 1);
    for (std::size_t f = 0; f < names.size(); ++f)
      if (chosen >> f & 1) put(path / names[f], text_of(others[o] / names[f]));
    return "files " + std::to_string(chosen) + " of checkpoint " + std::to_string(o);
  }
  // The manifest of one with the hash of another, with either's shards.
  std::string other_manifest(Draw& draw) {
    const std::size_t o = draw(others.size());
    const bool hash = draw(2) == 0, shards = draw(2) == 0;
    for (std::size_t f = 0; f < names.size(); ++f) {
      const bool is_hash = names[f] == manifest_hash_name;
      if (is_shard(f) ? shards : is_hash == hash) put(path / names[f], text_of(others[o] / names[f]));
    }
    return std::string(hash ? "hash" : "manifest") + " of checkpoint " + std::to_string(o);
  }
  std::string renamed(Draw& draw) {
    const std::size_t f = draw(names.size()), g = draw(names.size());
    fs::rename(path / names[f], path / "aside");
    if (g != f) fs::rename(path / names[g], path / names[f]);
    if (draw(3) == 0)
      fs::rename(path / "aside", path / "shard_00007.h5");
    else
      fs::rename(path / "aside", path / names[g]);
    return names[f] + " and " + names[g] + " renamed";
  }
  // Chunks of one size: in one file, of two files, or of another checkpoint.
  std::string chunks_swapped(Draw& draw) {
    const std::size_t f = shard(draw), g = draw(2) == 0 ? f : shard(draw);
    const StoredChunk a = chunk(draw, f), b = chunk(draw, g);
    const std::size_t bytes = std::min(a.bytes, b.bytes);
    std::string first = originals[f], second = f == g ? first : originals[g];
    const std::string part = first.substr(a.offset, bytes), other = second.substr(b.offset, bytes);
    first.replace(a.offset, bytes, other);
    if (f == g) {
      first.replace(b.offset, bytes, part);
    } else {
      second.replace(b.offset, bytes, part);
      put(path / names[g], second);
    }
    put(path / names[f], first);
    return "chunks at " + names[f] + " " + std::to_string(a.offset) + ", " + names[g] + " " + std::to_string(b.offset);
  }
  std::string foreign_chunk(Draw& draw) {
    const std::size_t f = shard(draw);
    const StoredChunk a = chunk(draw, f);
    std::string text = originals[f];
    text.replace(a.offset, a.bytes, text_of(others[draw(2)] / names[f]).substr(a.offset, a.bytes));
    put(path / names[f], text);
    return "a foreign chunk in " + names[f];
  }
  // A block that was never written, or written to another place.
  std::string block(Draw& draw) {
    const std::size_t f = draw(names.size()), size = std::min<std::size_t>(512, originals[f].size());
    const std::size_t to = draw(originals[f].size() - size + 1), from = draw(originals[f].size() - size + 1);
    std::string text = originals[f];
    text.replace(to, size, draw(2) == 0 ? std::string(size, '\0') : originals[f].substr(from, size));
    put(path / names[f], text);
    return "a block of " + names[f] + " at " + std::to_string(to);
  }
  // Another file under the name: what it refers to counts, and that it is a file.
  std::string linked(Draw& draw) {
    const std::size_t f = draw(names.size());
    const fs::path file = path / names[f], outside = scratch.path / "outside";
    const bool hard = draw(2) == 0;
    const std::uint64_t target = draw(hard ? 2 : 5);
    put(outside, target == 0 ? originals[f] : foreign(draw, f));
    fs::remove(file);
    if (hard)
      fs::create_hard_link(outside, file);
    else
      fs::create_symlink(target < 2    ? outside
                         : target == 2 ? path
                                       : fs::path(target == 3 ? "nowhere" : "/dev/zero"),
                         file);
    return names[f] + (hard ? " is a hard link" : " is a symbolic link") + " of kind " + std::to_string(target);
  }
  std::string no_file(Draw& draw) {
    const std::size_t f = draw(names.size());
    fs::remove(path / names[f]);
    if (draw(2) == 0)
      EXPECT_EQ(::mkfifo((path / names[f]).c_str(), 0600), 0);
    else
      fs::create_directory(path / names[f]);
    return names[f] + " is no file";
  }
  // What nobody asks for changes nothing.
  std::string more_files(Draw& draw) {
    const char* extra[] = {"shard_00003.h5", "shard_99999.h5", ".manifest.sha256", "manifest.h5.bak", "core"};
    for (const char* name : extra)
      if (draw(2) == 0) put(path / name, foreign(draw, draw(names.size())));
    return "more files";
  }
  std::string other_hash_text(Draw& draw) {
    const std::string hash = text_of(path / manifest_hash_name).substr(0, 64);
    std::string upper = hash;
    for (char& c : upper) c = static_cast<char>(std::toupper(c));
    const std::string texts[] = {hash,
                                 hash + "\n",
                                 hash + "  manifest.h5",
                                 hash + "  manifest.h5\r\n",
                                 hash + " *manifest.h5\n",
                                 hash + "  ../manifest.h5\n",
                                 hash + "  manifest.h5\n\n",
                                 "\xef\xbb\xbf" + hash + "  manifest.h5\n",
                                 upper + "  manifest.h5\n",
                                 std::string(64, '0') + "  manifest.h5\n",
                                 "\\" + hash + "  manifest.h5\n"};
    const std::size_t t = draw(std::size(texts));
    put(path / manifest_hash_name, texts[t]);
    return "hash text " + std::to_string(t);
  }
};

const std::vector<Mixtures::Kind>& Mixtures::kinds() {
  static const std::vector<Kind> all = {&Mixtures::cut_short,      &Mixtures::lengthened,     &Mixtures::removed,
                                        &Mixtures::mixed,          &Mixtures::other_manifest, &Mixtures::renamed,
                                        &Mixtures::chunks_swapped, &Mixtures::foreign_chunk,  &Mixtures::block,
                                        &Mixtures::linked,         &Mixtures::no_file,        &Mixtures::more_files,
                                        &Mixtures::other_hash_text};
  return all;
}

TEST_F(Mixtures, AreFoundOrWithoutEffect) {
  const std::uint64_t trials = count("FORGE_DAMAGE_MIXTURES", long_run() ? 1040 : 104);
  ASSERT_EQ(kinds().size(), 13u);
  std::vector<std::uint64_t> of_kind(kinds().size());
  for (std::uint64_t trial = 0; trial < trials; ++trial) {
    Draw draw(8, trial);
    const Kind kind = kinds()[trial % kinds().size()];
    expect_nothing_silent(std::to_string(trial) + ": " + (this->*kind)(draw));
    restore();
    ++of_kind[trial % kinds().size()];
  }
  for (const std::uint64_t n : of_kind) EXPECT_GE(n, trials / 13);  // every kind in its turn
  report(trials);
  EXPECT_GE(refused_, static_cast<int>(trials / 2));
}

// Another checkpoint under this one's name, whole.
TEST_F(Mixtures, ADirectoryHoldsTheStepOfItsName) {
  for (const std::string& name : names) put(path / name, text_of(others[1] / name));
  const auto findings = verify_checkpoint(path, 1);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_NE(findings[0].find("holds step 2"), std::string::npos) << findings[0];
  EXPECT_THROW(CheckpointFiles files(path), BadCheckpoint);
  // Any other name may be given to a copy.
  fs::rename(path, scratch.path / "best");
  EXPECT_EQ(CheckpointFiles(scratch.path / "best").facts().step, 2);
}

}  // namespace
}  // namespace forge::test
