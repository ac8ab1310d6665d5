// Stores from job to job how often each expert was used, to choose the experts in memory.
//
// A file for each model is in Weft's cache folder. It is JSON:
//     {"version": 1, "layers": {"3": [12.5, 0, ...], ...}}      by layer and expert
// A count is the number of steps that used the expert. Counts are hints: a missing or damaged file
// means no counts.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "backend/executable.h"
#include "base/result.h"
#include "program/program.h"

namespace weft::engine {

using ExpertCounts = std::map<int64_t, std::vector<float>>;  // by layer, then by expert

// The file for the model with this fingerprint (model_files/model_file.h). "": there is no cache
// folder.
std::string ExpertUsePath(const std::string& fingerprint);
// {}: there is no such file, or it is damaged.
ExpertCounts LoadExpertUse(const std::string& path);
// Replaces the file. The counts of experts that `counts` does not have stay unchanged.
// first_expert: the model's number of the first expert in `counts`. Errors: as ReplaceFile.
Status SaveExpertUse(const std::string& path, const ExpertCounts& counts, int64_t first_expert = 0);

// The counts of a rank's experts, and the uses of its stacks. first_expert: the model's number of
// the rank's first expert.
ExpertCounts CountsOf(const program::Program& program, std::span<const backend::ExpertUse> uses);
std::vector<backend::ExpertUse> UsesOf(const program::Program& program, const ExpertCounts& counts,
                                       int64_t first_expert);

}  // namespace weft::engine
