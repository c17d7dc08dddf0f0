#include <gtest/gtest.h>

#include "cases.hpp"
#include "comm/mpi_communicator.hpp"

// CPU build: the same operations with buffers cut into messages of a few bytes, as long ones are, and with waiting that
// gives the core away.

namespace forge {
namespace {

TEST(MpiPieces, MessagesOfOneElement) {
  const auto world = MpiCommunicator::world(false, 1);
  comm_cases::sums_are_repeatable(*world);
  comm_cases::transfers(*world, Stream::Kind::Inline);
}

TEST(MpiPieces, MessagesOfSeveralElements) {
  const auto world = MpiCommunicator::world(true, 1000);
  comm_cases::all_operations(*world, Stream::Kind::Inline);
  comm_cases::transfers(*world, Stream::Kind::Worker);
  comm_cases::overlap(*world);
}

}  // namespace
}  // namespace forge
