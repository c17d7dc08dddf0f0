#pragma once

#include <string>

#include "config/deck.hpp"
#include "core/json.hpp"
#include "layout/mesh_shape.hpp"
#include "model/spec.hpp"
#include "schedule/schedule.hpp"

namespace forge {

// How a resolved deck lays a model out, as text for people.

// The schedule of one step on the deck's pipeline ranks.
Schedule shown_schedule(const Deck& deck);

// Every stage: its pipeline rank and chunk, its contents, and its share of the FLOP.
std::string stage_table(const Deck& deck, const ModelSpec& spec, const Schedule& schedule);

// Ranks, chunks, microbatches, and how long the ranks idle: with equal stages and F = B = W, and with the stages' FLOP;
// with train.recompute full B recomputes F.
std::string schedule_line(const Deck& deck, const ModelSpec& spec, const Schedule& schedule);

// The mesh, the stages and the schedule.
JsonLine layout_json(const Deck& deck, const ModelSpec& spec, const MeshShape& mesh, const Schedule& schedule);

// --schedule: the drawing with equal stages and F = B = W, as text; or "svg:FILE", which is written. Returns the text
// to print. Throws IoFailed.
std::string draw_schedule(const std::string& option, const Deck& deck, const Schedule& schedule);

}  // namespace forge
