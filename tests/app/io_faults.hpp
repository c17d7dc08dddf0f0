#pragma once

// For tests that io_faults.cpp is linked into: from here on calls fail as `text` says (FORGE_IO_FAULT), of files whose
// path contains `directory`; nullptr: none fails.
void set_io_fault(const char* text, const char* directory);
// Whether a call has failed since.
bool io_fault_came_to_pass();
