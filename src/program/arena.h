// The arena of a program whose rows may run in two halves.
#pragma once

#include <cstdint>
#include <vector>

#include "program/program.h"

namespace weft::program {

// As PlanArena, for backends that run the first half of a step's rows up to one sum (all_reduce)
// ahead of the second: what is used before a sum stays alive until the end of what follows it, up
// to the next. Then the rows of a half, each at its place in its value, are safe from the other.
ArenaPlan PlanArenaInHalves(const Program& program, int64_t tokens, int64_t outputs,
                            const std::vector<ValueId>& keep);

}  // namespace weft::program
