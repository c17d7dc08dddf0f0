#pragma once

#include <memory>

#include "comm/mail.hpp"

namespace forge {

// The mail between the ranks of MPI_COMM_WORLD, over a communicator of its own. Made by all ranks together; it must end
// before MPI does.
std::unique_ptr<Mail> mpi_mail();

}  // namespace forge
