#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "../equivalence/enumerate.hpp"
#include "../equivalence/models.hpp"
#include "comm/environment.hpp"
#include "config/optimizer_table.hpp"
#include "config/schedule_name.hpp"
#include "mpi_recorder.hpp"
#include "optim/optimizer.hpp"
#include "plan/memory.hpp"
#include "train/batch_feed.hpp"
#include "train/trainer.hpp"

// Run by mpirun on 4 ranks (tests/mpi_main.cpp): once the first steps are through, a step asks the heap for nothing on
// the thread that computes, but inside of MPI and oneDNN. malloc and its kin are this executable's own here, and count.

namespace {

thread_local bool counts = false;
thread_local int library_depth = 0;
thread_local long asked = 0;
thread_local void* first_caller = nullptr;

void note(void* caller) {
  if (!counts || library_depth > 0 || forge::test::inside_mpi()) return;
  if (asked++ == 0) first_caller = caller;
}

}  // namespace

extern "C" {

void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t bytes) {
  note(__builtin_return_address(0));
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) {
  note(__builtin_return_address(0));
  return __libc_calloc(count, bytes);
}
void* realloc(void* old, std::size_t bytes) {
  note(__builtin_return_address(0));
  return __libc_realloc(old, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) {
  note(__builtin_return_address(0));
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) {
  note(__builtin_return_address(0));
  *memory = __libc_memalign(alignment, bytes);
  return *memory ? 0 : 12;
}

// oneDNN's product in fp32 makes room for itself in every call.
int dnnl_sgemm(char ta, char tb, long m, long n, long k, float alpha, const float* a, long lda, const float* b,
               long ldb, float beta, float* c, long ldc) {
  using Function =
      int(char, char, long, long, long, float, const float*, long, const float*, long, float, float*, long);
  static auto* const library = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, "dnnl_sgemm"));
  ++library_depth;
  const int status = library(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  --library_depth;
  return status;
}

// On some processors its other products do, too.
int dnnl_primitive_execute(const void* primitive, void* stream, int count, const void* arguments) {
  using Function = int(const void*, void*, int, const void*);
  static auto* const library = reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, "dnnl_primitive_execute"));
  ++library_depth;
  const int status = library(primitive, stream, count, arguments);
  --library_depth;
  return status;
}
}

namespace forge::test {

extern Environment* environment;

namespace {

// Places that keep their size have grown in the first steps, but for a stream's queue, which may grow once more where
// the thread that computes gets far ahead: of three pairs of steps one must ask for nothing.
constexpr std::int64_t warm = 3, pair = 2, pairs = 3, steps = warm + pair * pairs;

// Allocations of this thread in the pair of steps with the fewest, as Trainer::step takes them up to the report.
template <class T>
long asked_in_steps(const Deck& deck) {
  auto world = environment->make_world();
  const RunSetup setup = make_setup(deck, world->rank());
  Mesh mesh(std::move(world), setup.mesh, groups_of(setup));
  const MemoryPlan plan =
      plan_memory(setup.buffers, setup.share, setup.schedule, std::size_t{1} << 20, RunKind::training);
  Session<T> session(setup, plan.total(), RunKind::training, mesh, 1);
  session.initialise();
  const TrainingData data(setup);
  Optimizer<T> optimizer(session.storage(), deck.optimizer, session.update_tools());
  Loader loader(data.stream(setup), batch_share(setup), 1, steps, setup.rows());
  std::vector<long> of_pair(pairs, 0);
  for (std::int64_t s = 1; s <= steps; ++s) {
    asked = 0;
    counts = s > warm;
    const HostBatch& batch = loader.next();
    LabelCounts labels = batch.label_counts();
    mesh.data().sum_host({&labels.main, 1});
    mesh.data().sum_host({&labels.tokens, 1});
    if (!labels.mtp.empty()) mesh.data().sum_host(labels.mtp);
    BatchFeed feed(batch);
    session.compute_gradients(feed, s, labels);
    const StepResult result = session.update(optimizer, s, {deck.optimizer, deck.train.steps, s}, labels);
    counts = false;
    EXPECT_TRUE(result.finite);
    if (s > warm) of_pair[static_cast<std::size_t>((s - warm - 1) / pair)] += asked;
  }
  return *std::min_element(of_pair.begin(), of_pair.end());
}

long asked_by(const Deck& deck) {
  return with_compute_type(precision_of(deck), [&](auto type) { return asked_in_steps<decltype(type)>(deck); });
}

struct Case {
  const char* name;
  Deck model;
  std::vector<std::int64_t> axes;  // pp, dp_replicate, dp_shard, cp, tp
  std::int64_t zero_stage;
  PrecisionName precision;
  CpMethod method = CpMethod::ring;
  ScheduleName schedule = ScheduleName::one_f_one_b;
  Recompute recompute = Recompute::none;
};

Deck with_muon(Deck deck) {
  deck.optimizer.name = OptimizerName::muon;
  return deck;
}

// Every axis, every way to share states, every method of cp, every family of dense layers.
std::vector<Case> cases() {
  const auto models = test_models();
  using P = PrecisionName;
  return {{"llama, tp", models[0].deck, {1, 1, 2, 1, 2}, 1, P::fp64},
          {"llama, ZeRO 3", models[0].deck, {1, 1, 4, 1, 1}, 3, P::bf16},
          {"gpt2, tied stages", models[1].deck, {2, 2, 1, 1, 1}, 0, P::fp32},
          {"qwen3, ring", models[2].deck, {2, 1, 1, 2, 1}, 2, P::fp32},
          {"qwen2, V-shaped", models[3].deck, {2, 1, 2, 1, 1}, 1, P::bf16, CpMethod::ring, ScheduleName::zb_v},
          {"latent, gathered keys", models[4].deck, {1, 1, 1, 4, 1}, 3, P::fp64, CpMethod::all_gather},
          {"llama, heads",
           models[0].deck,
           {1, 1, 1, 2, 2},
           0,
           P::bf16,
           CpMethod::all_to_all,
           ScheduleName::one_f_one_b,
           Recompute::full},
          {"four stages",
           models[5].deck,
           {4, 1, 1, 1, 1},
           0,
           P::fp64,
           CpMethod::ring,
           ScheduleName::zero_bubble,
           Recompute::selective},
          {"two depths", mtp_models()[2].deck, {2, 1, 2, 1, 1}, 2, P::fp64},
          {"matrices of four ranks", with_muon(models[0].deck), {1, 1, 2, 1, 2}, 1, P::bf16}};
}

TEST(Heap, IsNotAskedInASteadyStep) {
  std::size_t tested = 0;
  for (const Case& c : cases()) {
    Deck deck = c.model;
    deck.mesh.pp = c.axes[0], deck.mesh.dp_replicate = c.axes[1], deck.mesh.dp_shard = c.axes[2];
    deck.mesh.cp = c.axes[3], deck.mesh.tp = c.axes[4], deck.mesh.cp_method = c.method;
    deck.train.zero_stage = c.zero_stage;
    deck.train.precision = c.precision;
    deck.train.recompute = c.recompute;
    deck.schedule.name = c.schedule;
    fit_model(deck);
    ASSERT_EQ(illegality(deck), "") << c.name;
    EXPECT_EQ(asked_by(deck), 0) << c.name << ", rank " << environment->rank() << ": first by " << first_caller;
    ++tested;
  }
  EXPECT_EQ(tested, 10u);
}

// The count counts.
TEST(Heap, IsSeenToBeAsked) {
  asked = 0;
  counts = true;
  std::vector<int>* numbers = new std::vector<int>(100);
  void* raw = std::malloc(10);
  counts = false;
  EXPECT_EQ(asked, 3);
  std::free(raw);
  delete numbers;
}

}  // namespace
}  // namespace forge::test
