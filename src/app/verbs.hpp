#pragma once

#include "app/command_line.hpp"
#include "comm/world.hpp"

namespace forge {

// One function per verb, each in its own run_<verb>.cpp.
void run_train(const CommandLine& line, const World& world);
void run_gradients(const CommandLine& line, const World& world);
void run_evaluate(const CommandLine& line, const World& world);
void run_score(const CommandLine& line, const World& world);
void run_show(const CommandLine& line);
void run_plan(const CommandLine& line);
void run_replay(const CommandLine& line, const World& world);
void run_calibrate(const CommandLine& line, const World& world);
void run_check(const CommandLine& line, const World& world);
void run_generate(const CommandLine& line, const World& world);
// For --prompts.
void run_generate_lines(const CommandLine& line, const World& world);
void run_tokenize(const CommandLine& line);
void run_report(const CommandLine& line);
void run_verify(const CommandLine& line, const World& world);
void run_export(const CommandLine& line);
void run_verify_checkpoint(const CommandLine& line);
void run_help(const CommandLine& line);
void run_version(const CommandLine& line);

}  // namespace forge
