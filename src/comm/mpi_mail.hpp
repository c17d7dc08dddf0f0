#pragma once

#include <memory>

#include "comm/mail.hpp"

namespace forge {

// Between the ranks of MPI_COMM_WORLD, over a communicator of its own. Made by all ranks together; it ends before MPI
// does.
std::unique_ptr<Mail> mpi_mail();

}  // namespace forge
